/* A depthwise 3x3 convolution between two normalisations: every channel has a kernel of its own.

   Between the matrix products of a MobileNet's 1x1 convolutions lie a normalisation, this, and another.
   Done together, an image that is normalised only to be convolved is never written, nor are the
   gradients between the two. */
#include "taps.h"

/* Convolve the normalised images z into x, and take x's moments on the way. */
static void convolve_all(Work *work, const Norm *first, Norm *second, const float *z, float *x)
{
    const Layout *of = &work->of;
    Py_ssize_t n = out_of(of);
    for (Py_ssize_t image = 0; image < of->n_images; image++, z += image_of(of))
        for (Py_ssize_t row = 0; row < of->out_rows; row++, x += n) {
            Taps taps;
            look(work, first, z, row, taps);
            convolve(work, taps, n, x);
            if (second->is_fixed)
                continue;
            if (image == 0 && row == 0)
                set_origin(second, x);
            add_to_moments(second, n, x);
        }
}

ON_VECTORS static void spread_run(Py_ssize_t n, Py_ssize_t run, const float *restrict grad,
                                  const float *restrict w, float *x0, float *x1, float *x2)
{
    for (Py_ssize_t i = 0; i < n; i++)
        x0[i] += grad[i] * w[i];
    for (Py_ssize_t i = 0; i < n; i++)
        x1[i] += grad[i] * w[run + i];
    for (Py_ssize_t i = 0; i < n; i++)
        x2[i] += grad[i] * w[2 * run + i];
}

/* Take a row whose parts are all there to its image, and make its place empty. */
static void take_row(Work *work, float *to_image, Py_ssize_t row)
{
    const Layout *of = &work->of;
    float *from = work->parts + row % SIDE * of->padded;
    for (Py_ssize_t column = 0; column < of->columns; column++)
        memcpy(to_image + (row * of->columns + column) * of->n_channels, from + place(of, column),
               of->n_channels * sizeof(float));
    memset(from, 0, of->padded * sizeof(float));
}

/* With a stride of two: give a row's part of the gradient to the rows under it, take what is complete.
   Return how many rows of the image are. */
static Py_ssize_t spread(Work *work, const float *grad, Py_ssize_t out_row, float *to_image)
{
    const Layout *of = &work->of;
    Py_ssize_t n = out_of(of), first = out_row * of->stride, done = first + of->stride;
    for (int r = 0; r < SIDE; r++) {
        float *lies = work->parts + (first + r) % SIDE * of->padded;
        for (Py_ssize_t start = 0; start < n; start += of->run)
            spread_run(n - start < of->run ? n - start : of->run, of->run, grad + start,
                       work->weights + r * SIDE * of->run, lies + place(of, 0) + start,
                       lies + place(of, 1) + start, lies + place(of, 2) + start);
    }
    if (out_row == of->out_rows - 1)
        done = of->rows;
    for (Py_ssize_t row = first; row < done; row++)
        take_row(work, to_image, row);
    if (out_row == of->out_rows - 1)
        memset(work->parts, 0, SIDE * of->padded * sizeof(float));
    return done;
}

/* With a stride of one: a row of the image needs the gradient's row before it and the one after it.
   Return how many rows of the image are complete. */
static Py_ssize_t gather(Work *work, Py_ssize_t out_row, float *to_image)
{
    const Layout *of = &work->of;
    Py_ssize_t n = out_of(of), done = out_row == of->out_rows - 1 ? of->rows : out_row;
    for (Py_ssize_t row = out_row ? out_row - 1 : 0; row < done; row++) {
        Taps taps;
        for (int tap = 0; tap < N_TAPS; tap++) {
            Py_ssize_t other = row - 1 + tap / SIDE;
            int is_inside = other >= 0 && other < of->out_rows;
            const float *lies = is_inside ? work->grads + other % SIDE * of->out_padded : work->nothing;
            taps[tap] = lies + tap % SIDE * of->n_channels;
        }
        convolve(work, taps, n, to_image + row * n);
    }
    return done;
}

/* Write the gradients of normalised images to `to_z`, and add to those of weights and of z's norm. */
static void differentiate_all(Work *work, Norm *first, const Norm *second, const float *z, const float *x,
                              const float *grad, float *to_z)
{
    const Layout *of = &work->of;
    Py_ssize_t n = out_of(of), n_row = of->columns * of->n_channels;
    for (Py_ssize_t image = 0; image < of->n_images; image++, z += image_of(of), to_z += image_of(of))
        for (Py_ssize_t row = 0, n_done = 0; row < of->out_rows; row++, x += n, grad += n) {
            float *own = work->grads + row % SIDE * of->out_padded + of->n_channels;
            Taps taps;
            write_gradients(second, n, x, grad, own);
            look(work, first, z, row, taps);
            add_to_weights(work, taps, own);
            Py_ssize_t done = of->stride == 1 ? gather(work, row, to_z) : spread(work, own, row, to_z);
            add_to_gradients(first, (done - n_done) * n_row, z + n_done * n_row, to_z + n_done * n_row);
            n_done = done;
        }
}

static int comes_out(const Py_buffer *image, const Layout *of, const char *name)
{
    return has_length(image, 0, of->n_images, name) && has_length(image, 1, of->out_rows, name) &&
           has_length(image, 2, of->out_columns, name) && has_length(image, CHANNEL, of->n_channels, name);
}

/* What both ways are given first, and the settings behind all arrays: of both norms, and the stride. */
enum { Z, FIRST, WEIGHTS, X, SECOND, N_SHARED };
enum { N_ALL_SETTINGS = 2 * N_SETTINGS + 1 };

typedef struct {
    Work work;
    Norm first, second;
} Job;

static int begin_job(Job *job, const Py_buffer *views, PyObject *const *settings)
{
    Layout *of = &job->work.of;
    if (read_norm(settings, &views[Z], &job->first) < 0 ||
        read_norm(settings + N_SETTINGS, &views[X], &job->second) < 0 ||
        read_layout(&views[Z], settings[2 * N_SETTINGS], of) < 0 || !comes_out(&views[X], of, "x") ||
        !has_channels(&views[FIRST], N_CHANNEL_VALUES, of->n_channels, "first") ||
        !has_channels(&views[SECOND], N_CHANNEL_VALUES, of->n_channels, "second") ||
        !has_channels(&views[WEIGHTS], of->n_channels, N_TAPS, "weights"))
        return -1;
    if (begin_norm(&job->first) < 0)
        return -1;
    if (begin_norm(&job->second) < 0) {
        end_norm(&job->first);
        return -1;
    }
    if (begin_work(&job->work) < 0) {
        end_norm(&job->first);
        end_norm(&job->second);
        return -1;
    }
    return 0;
}

static void end_job(Job *job)
{
    end_norm(&job->first);
    end_norm(&job->second);
    end_work(&job->work);
}

/* Go one way through images whose own arrays fit, and let go of the arrays. */
static PyObject *go(void (*way)(Job *, const Py_buffer *), int is_fitting, Py_buffer *views, int n_views,
                    PyObject *const *settings)
{
    Job job;
    int is_good = is_fitting && begin_job(&job, views, settings) == 0;
    if (is_good) {
        Py_BEGIN_ALLOW_THREADS
        way(&job, views);
        end_job(&job);
        Py_END_ALLOW_THREADS
    }
    release(views, n_views);
    return is_good ? Py_NewRef(Py_None) : NULL;
}

static const Expected FORWARD[] = {{"z", "float32", N_AXES, 0},  {"first", "float32", 2, 1},
                                   {"weights", "float32", 2, 0}, {"x", "float32", N_AXES, 1},
                                   {"second", "float32", 2, 1},  {"y", "float32", N_AXES, 1}};
enum { Y = N_SHARED, N_FORWARD = sizeof FORWARD / sizeof *FORWARD };

static void forward(Job *job, const Py_buffer *views)
{
    const Channels first = channels_of(&views[FIRST]), second = channels_of(&views[SECOND]);
    settle_image(&job->first, &first, views[Z].buf);
    lay_weights(&job->work, views[WEIGHTS].buf, 0);
    convolve_all(&job->work, &job->first, &job->second, views[Z].buf, views[X].buf);
    settle(&job->second, &second);
    normalise(&job->second, job->second.n_pixels * job->second.n_channels, views[X].buf, views[Y].buf);
}

PyObject *depthwise_forward(PyObject *self, PyObject *const *given, Py_ssize_t n_given)
{
    (void)self;
    Py_buffer views[N_FORWARD];
    if (!has_arguments(n_given, N_FORWARD + N_ALL_SETTINGS) || open_arrays(given, FORWARD, N_FORWARD, views) < 0)
        return NULL;
    return go(forward, is_like(&views[Y], &views[X], "y"), views, N_FORWARD, given + N_FORWARD);
}

static const Expected BACKWARD[] = {{"z", "float32", N_AXES, 0},    {"first", "float32", 2, 0},
                                    {"weights", "float32", 2, 0},   {"x", "float32", N_AXES, 0},
                                    {"second", "float32", 2, 0},    {"grad", "float32", N_AXES, 0},
                                    {"to_z", "float32", N_AXES, 1}, {"to_first", "float32", 2, 1},
                                    {"to_weights", "float32", 2, 1}, {"to_second", "float32", 2, 1}};
enum { GRAD = N_SHARED, TO_Z, TO_FIRST, TO_WEIGHTS, TO_SECOND, N_BACKWARD };

static void backward(Job *job, const Py_buffer *views)
{
    const Channels first = channels_of(&views[FIRST]), second = channels_of(&views[SECOND]);
    recall(&job->first, &first);
    recall(&job->second, &second);
    add_to_gradients(&job->second, job->second.n_pixels * job->second.n_channels, views[X].buf, views[GRAD].buf);
    settle_gradients(&job->second, &second, views[TO_SECOND].buf);
    lay_weights(&job->work, views[WEIGHTS].buf, job->work.of.stride == 1);
    differentiate_all(&job->work, &job->first, &job->second, views[Z].buf, views[X].buf, views[GRAD].buf,
                      views[TO_Z].buf);
    write_weights(&job->work, views[TO_WEIGHTS].buf);
    settle_gradients(&job->first, &first, views[TO_FIRST].buf);
    write_gradients(&job->first, job->first.n_pixels * job->first.n_channels, views[Z].buf, views[TO_Z].buf,
                    views[TO_Z].buf);
}

PyObject *depthwise_backward(PyObject *self, PyObject *const *given, Py_ssize_t n_given)
{
    (void)self;
    Py_buffer views[N_BACKWARD];
    if (!has_arguments(n_given, N_BACKWARD + N_ALL_SETTINGS) ||
        open_arrays(given, BACKWARD, N_BACKWARD, views) < 0)
        return NULL;
    Py_ssize_t n_channels = views[Z].shape[CHANNEL];
    int is_fitting = is_like(&views[GRAD], &views[X], "grad") && is_like(&views[TO_Z], &views[Z], "to_z") &&
                     has_channels(&views[TO_FIRST], N_CHANNEL_GRADIENTS, n_channels, "to_first") &&
                     has_channels(&views[TO_SECOND], N_CHANNEL_GRADIENTS, n_channels, "to_second") &&
                     has_channels(&views[TO_WEIGHTS], n_channels, N_TAPS, "to_weights");
    return go(backward, is_fitting, views, N_BACKWARD, given + N_BACKWARD);
}
