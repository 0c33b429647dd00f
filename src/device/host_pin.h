// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The functions of an accelerator's runtime that page-lock memory which is there already. They are
// looked up in the libraries that the program has loaded, so that nothing here needs CUDA or ROCm
// to be compiled, and one build serves every libtorch.

#include <c10/core/DeviceType.h>

#include <cstddef>
#include <optional>
#include <string>

namespace stoker::detail {

// In the words of CUDA's runtime: 0 is success, anything else an error's number.
struct HostPinApi {
  int (*host_register)(void* begin, size_t bytes, unsigned flags) = nullptr;
  int (*host_unregister)(void* begin) = nullptr;
  int (*get_last_error)() = nullptr;  // clears it, or torch's next check would throw our error
  const char* (*get_error_string)(int error) = nullptr;

  std::string text_of(int error) const;
};

// For memory that all devices of that type may read. Nothing if the type has no such functions, or
// its runtime is not loaded.
std::optional<HostPinApi> find_host_pin_api(c10::DeviceType type);

// Tests only: what `find_host_pin_api` gives from now on; given nothing, it searches again.
void replace_host_pin_api(std::optional<HostPinApi> api);

}  // namespace stoker::detail
