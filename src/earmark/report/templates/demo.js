// Pictures of sounds are drawn from their levels; a line shows what is being heard.

/** The colour of a level from 0 to 255: black, purple, orange, pale yellow. */
function colour(level) {
  const stops = [[0, 0, 4], [81, 18, 124], [183, 55, 121], [252, 137, 97], [252, 253, 191]];
  const place = (level / 255) * (stops.length - 1);
  const below = Math.min(Math.floor(place), stops.length - 2);
  return stops[below].map((part, i) => part + (place - below) * (stops[below + 1][i] - part));
}

/** @param {HTMLCanvasElement} canvas */
function draw(canvas) {
  const bytes = atob(canvas.dataset.levels.split(",")[1]);
  const picture = new ImageData(canvas.width, canvas.height);
  for (let i = 0; i < bytes.length; i++) {
    picture.data.set([...colour(bytes.charCodeAt(i)), 255], 4 * i);
  }
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

/** @param {HTMLAudioElement} player */
function follow(player) {
  const { style } = player.parentElement.querySelector(".picture");
  const show = () => {
    style.setProperty("--at", player.currentTime / (player.duration || 1));
    style.setProperty("--playing", player.paused ? 0 : 1);
    if (!player.paused) requestAnimationFrame(show);
  };
  player.addEventListener("play", show);
  player.addEventListener("pause", show);
}

document.querySelectorAll("canvas[data-levels]").forEach(draw);
document.querySelectorAll("audio").forEach(follow);
