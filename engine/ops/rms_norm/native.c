/* RMS norms of rows. */
#include "vector.h"


typedef struct {
  const float *x; /* [outer, inner, size], its first two dimensions by strides */
  int64_t outer, outer_stride, inner, inner_stride, size;
  const float *weight; /* [size] */
  double eps;
  float *out; /* [outer, inner, size] */
} RmsNorm;

static float mean_square(const float *x, int64_t size) {
  const int64_t whole = size / WIDTH * WIDTH;
  floats tail = load_some(x + whole, size - whole), total = tail * tail;
  for (int64_t i = 0; i < whole; i += WIDTH) total += load(x + i) * load(x + i);
  return sum(total) / (float)size;
}

void rms_norm(const RmsNorm *a, int64_t part, int64_t parts) {
  const int64_t size = a->size, whole = size / WIDTH * WIDTH, rest = size - whole;
  const Range mine = share(a->outer, part, parts);
  for (int64_t row = mine.begin; row < mine.end; row++)
    for (int64_t head = 0; head < a->inner; head++) {
      const float *from = a->x + row * a->outer_stride + head * a->inner_stride;
      float *to = a->out + (row * a->inner + head) * size;
      const float scale = 1.0f / sqrtf(mean_square(from, size) + (float)a->eps);
      for (int64_t i = 0; i < whole; i += WIDTH) store(to + i, load(from + i) * scale * (1.0f + load(a->weight + i)));
      const floats tail = load_some(from + whole, rest) * scale * (1.0f + load_some(a->weight + whole, rest));
      store_some(to + whole, tail, rest);
    }
}
