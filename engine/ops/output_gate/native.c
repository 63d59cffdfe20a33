/* x * sigmoid(gate) of heads. */
#include "vector.h"


typedef struct {
  const float *x;    /* [rows, heads, size] */
  const float *gate; /* the same, rows and heads by strides */
  int64_t rows, row_stride, heads, head_stride, size;
  float *out; /* [rows, heads, size] */
} OutputGate;

void output_gate(const OutputGate *a, int64_t part, int64_t parts) {
  const int64_t size = a->size, whole = size / WIDTH * WIDTH, rest = size - whole;
  const Range mine = share(a->rows, part, parts);
  for (int64_t row = mine.begin; row < mine.end; row++)
    for (int64_t head = 0; head < a->heads; head++) {
      const int64_t at = (row * a->heads + head) * size;
      const float *x = a->x + at, *gate = a->gate + row * a->row_stride + head * a->head_stride;
      for (int64_t i = 0; i < whole; i += WIDTH) store(a->out + at + i, load(x + i) * sigmoid(load(gate + i)));
      store_some(a->out + at + whole, load_some(x + whole, rest) * sigmoid(load_some(gate + whole, rest)), rest);
    }
}
