// SPDX-License-Identifier: BSD-3-Clause
// A user's program: two epochs over the numbers 0 .. 99 and their squares, with two workers.
#include <stoker/stoker.h>
#include <torch/types.h>

#include <cstdint>
#include <iostream>
#include <tuple>

struct Squares {
  std::tuple<torch::Tensor, int64_t> get(size_t index) const {
    const auto number = static_cast<int64_t>(index);
    return {torch::full({3}, number), number * number};
  }
  size_t size() const { return 100; }
};

int main() {
  stoker::DataLoader loader(Squares{}, {.batch_size = 8, .shuffle = true, .num_workers = 2});
  int64_t numbers = 0;
  int64_t squares = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& [rows, square] : loader) {
      numbers += rows.sum().item<int64_t>();
      squares += square.sum().item<int64_t>();
    }
  }
  std::cout << "numbers " << numbers << ", squares " << squares << "\n" << loader.stats() << "\n";
  return numbers == 2 * 3 * 4950 && squares == 2 * 328350 ? 0 : 1;
}
