/**
 * The value by which a cell is sorted.
 * @param {HTMLTableRowElement} row
 * @param {number} column
 * @returns {number | string}
 */
function cellValue(row, column) {
  const cell = row.cells[column];
  const value = cell.dataset.value;
  return cell.tagName === "TH" ? value.toLowerCase() : Number(value);
}

/**
 * Sort the table by a column: numbers from the highest, names from A; a second time, reversed.
 * @param {HTMLTableElement} table
 * @param {number} column
 */
function sortBy(table, column) {
  const headings = [...table.tHead.rows[0].cells];
  const first = column === 0 ? "ascending" : "descending";
  const second = column === 0 ? "descending" : "ascending";
  const order = headings[column].getAttribute("aria-sort") === first ? second : first;
  headings.forEach((heading) => heading.removeAttribute("aria-sort"));
  headings[column].setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const [one, two] = [cellValue(a, column), cellValue(b, column)];
    return sign * (one < two ? -1 : one > two ? 1 : 0);
  });
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table")) {
  table.tHead.querySelectorAll("button").forEach((button, column) => {
    button.addEventListener("click", () => sortBy(table, column));
  });
}
