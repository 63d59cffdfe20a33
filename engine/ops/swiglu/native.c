/* silu(gate) * up of rows that hold both halves. */
#include "vector.h"


typedef struct {
  const float *x; /* [rows, 2 * size] */
  int64_t rows, size;
  float *out; /* [rows, size] */
} Swiglu;

void swiglu(const Swiglu *a, int64_t part, int64_t parts) {
  const int64_t size = a->size, whole = size / WIDTH * WIDTH, rest = size - whole;
  const Range mine = share(a->rows, part, parts);
  for (int64_t row = mine.begin; row < mine.end; row++) {
    const float *gate = a->x + row * 2 * size, *up = gate + size;
    float *to = a->out + row * size;
    for (int64_t i = 0; i < whole; i += WIDTH) store(to + i, silu(load(gate + i)) * load(up + i));
    store_some(to + whole, silu(load_some(gate + whole, rest)) * load_some(up + whole, rest), rest);
  }
}
