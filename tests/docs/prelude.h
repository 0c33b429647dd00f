// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the C++ blocks in the documents take for granted.

#include <stoker/stoker.h>
#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

void train(const torch::Tensor& images, const torch::Tensor& labels);
torch::Tensor read_image(const std::string& path);

struct Record {
  std::array<char, 64> bytes;
};
