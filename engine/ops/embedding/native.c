/* Rows of the embedding table. */
#include "vector.h"

typedef struct {
  const int64_t *token_ids; /* [tokens] */
  const void *table;        /* [vocabulary, size] */
  int64_t half;             /* whether it is bf16, else fp32 */
  int64_t tokens, size;
  float *out; /* [tokens, size] */
} Embedding;

void embedding(const Embedding *a, int64_t part, int64_t parts) {
  const Range mine = share(a->tokens, part, parts);
  for (int64_t t = mine.begin; t < mine.end; t++) {
    const int64_t from = a->token_ids[t] * a->size;
    uint32_t *bits = (uint32_t *)(a->out + t * a->size);
    if (a->half) /* bf16 is the upper half of the same number */
      for (int64_t i = 0; i < a->size; i++) bits[i] = (uint32_t)((const uint16_t *)a->table)[from + i] << 16;
    else
      memcpy(bits, (const float *)a->table + from, (size_t)a->size * sizeof(float));
  }
}
