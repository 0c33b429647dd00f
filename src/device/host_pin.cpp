// SPDX-License-Identifier: BSD-3-Clause
#include "device/host_pin.h"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstring>
#include <string_view>

namespace stoker::detail {

namespace {

struct Names {
  std::string_view library;  // how the file's name begins
  const char* host_register;
  const char* host_unregister;
  const char* get_last_error;
  const char* get_error_string;
};

// libtorch for ROCm calls its devices CUDA's too.
constexpr std::array kNames = {
    Names{"libcudart", "cudaHostRegister", "cudaHostUnregister", "cudaGetLastError",
          "cudaGetErrorString"},
    Names{"libamdhip64", "hipHostRegister", "hipHostUnregister", "hipGetLastError",
          "hipGetErrorString"},
};

std::optional<HostPinApi>& replacement() {
  static std::optional<HostPinApi> api;
  return api;
}

template <class Function>
bool look_up(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

std::optional<HostPinApi> api_in(void* library, const Names& names) {
  HostPinApi api;
  const bool found = look_up(library, names.host_register, api.host_register) &&
                     look_up(library, names.host_unregister, api.host_unregister) &&
                     look_up(library, names.get_last_error, api.get_last_error) &&
                     look_up(library, names.get_error_string, api.get_error_string);
  return found ? std::optional(api) : std::nullopt;
}

struct Search {
  std::string_view begins;
  std::string path;
};

int look_at_library(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const std::string_view path = info->dlpi_name;
  if (!path.substr(path.rfind('/') + 1).starts_with(search.begins)) return 0;
  search.path = path;
  return 1;
}

// A plugin's libtorch may have been loaded where RTLD_DEFAULT does not look, and some packages add
// a hash to the file's name. The handle is kept: the library must stay as long as the functions.
std::optional<HostPinApi> api_in_loaded_library(const Names& names) {
  Search search{names.library, {}};
  dl_iterate_phdr(look_at_library, &search);
  if (search.path.empty()) return std::nullopt;
  void* library = dlopen(search.path.c_str(), RTLD_NOLOAD | RTLD_LAZY);
  return library == nullptr ? std::nullopt : api_in(library, names);
}

}  // namespace

std::string HostPinApi::text_of(int error) const {
  const char* text = get_error_string(error);
  return text == nullptr ? "error " + std::to_string(error) : text;
}

std::optional<HostPinApi> find_host_pin_api(c10::DeviceType type) {
  if (replacement()) return replacement();
  if (type != c10::DeviceType::CUDA && type != c10::DeviceType::HIP) return std::nullopt;
  for (const Names& names : kNames) {
    // First the very function that libtorch itself is linked to.
    if (auto api = api_in(RTLD_DEFAULT, names)) return api;
    if (auto api = api_in_loaded_library(names)) return api;
  }
  return std::nullopt;
}

void replace_host_pin_api(std::optional<HostPinApi> api) { replacement() = api; }

}  // namespace stoker::detail
