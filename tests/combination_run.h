// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "combination.h"

namespace stoker::combination {

// Runs the configuration, in this process, and compares. Empty if all is as the documents say; else
// what is not. Calls at(stage) with what it does next.
std::string finding_of(const Combination& c, std::chrono::seconds timeout,
                       const std::function<void(const char*)>& at);

}  // namespace stoker::combination
