#include <concepts>
#include <cstdint>

template <std::integral Word>
__global__ void fill(Word* words, Word value) {
  words[threadIdx.x] = value;
}

void fill(std::int64_t* words) {
  fill<<<1, 32>>>(words, std::int64_t{1});
}
