// SPDX-License-Identifier: BSD-3-Clause
//
// The way to an accelerator, measured: how fast slots are copied beside other memory, whether
// copies and kernels overlap, and how near a training step with a loader comes to one without.

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <stoker/stoker.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  int64_t num_workers = 4;
  int64_t megabytes = 64;
  int64_t repeats = 50;
  int64_t batch_size = 128;
  int64_t steps = 200;
};

struct Big {  // one sample
  int64_t bytes;
  at::Tensor get(size_t) const { return at::full({bytes}, 7, at::kByte); }
  size_t size() const { return 1; }
};

struct Pictures {
  size_t count;
  std::tuple<at::Tensor, int64_t> get(size_t i) const {
    return {at::full({3, 128, 128}, static_cast<double>(i % 7), at::kFloat),
            static_cast<int64_t>(i % 10)};
  }
  size_t size() const { return count; }
};

void row(const char* what, const std::string& value) {
  std::printf("%-58s %s\n", what, value.c_str());
  std::fflush(stdout);
}
std::string text(const char* format, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

/// The accelerator, seen from its current stream.
class Device {
 public:
  explicit Device(at::Device device) : device_(device), guard_(device.type()) {}

  at::Device device() const { return device_; }
  c10::Stream stream() const { return guard_.getStream(device_); }
  c10::Stream new_stream() const { return guard_.getStreamFromGlobalPool(device_); }
  void wait() const { guard_.synchronizeStream(stream()); }

  /// Milliseconds that the current stream takes for what the body queues, by the device's clock.
  double time(const std::function<void()>& body) const {
    c10::Event begin(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Event end(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    begin.record(stream());
    body();
    end.record(stream());
    wait();
    return begin.elapsedTime(end);
  }

 private:
  at::Device device_;
  c10::impl::VirtualGuardImpl guard_;
};

double gigabytes_per_second(const Device& device, const at::Tensor& from, int64_t repeats) {
  const at::Tensor to = at::empty_like(from, from.options().device(device.device()));
  to.copy_(from, /*non_blocking=*/true);
  const double ms = device.time([&] {
    for (int64_t i = 0; i < repeats; ++i) to.copy_(from, /*non_blocking=*/true);
  });
  return static_cast<double>(from.nbytes()) * static_cast<double>(repeats) / ms / 1e6;
}

void measure_bandwidth(const Device& device, stoker::DataLoader<Big>& loader, int64_t repeats) {
  const at::Tensor slot = *loader.begin();
  const at::Tensor pageable = at::full_like(slot, 7, slot.options().pinned_memory(false));
  const at::Tensor pinned = pageable.pin_memory();
  row("batches pinned", slot.is_pinned() ? "yes" : "NO");
  row("copy to the device, a slot", text("%.1f GB/s", gigabytes_per_second(device, slot, repeats)));
  row("copy to the device, memory that libtorch pinned",
      text("%.1f GB/s", gigabytes_per_second(device, pinned, repeats)));
  row("copy to the device, pageable memory",
      text("%.1f GB/s", gigabytes_per_second(device, pageable, repeats)));
}

/// How much of the shorter of copying and computing hides behind the longer, when a slot is copied
/// on a stream of its own.
void measure_overlap(const Device& device, stoker::DataLoader<Big>& loader, int64_t repeats) {
  const at::Tensor slot = *loader.begin();
  const at::Tensor to = at::empty_like(slot, slot.options().device(device.device()));
  const at::Tensor a = at::ones({4096, 4096}, at::TensorOptions(at::kHalf).device(device.device()));
  at::Tensor b = at::empty_like(a);
  const auto compute = [&] {
    for (int64_t i = 0; i < repeats; ++i) at::mm_out(b, a, a);
  };
  const auto copy = [&] {
    for (int64_t i = 0; i < repeats; ++i) to.copy_(slot, /*non_blocking=*/true);
  };
  compute();
  copy();
  const double computing = device.time(compute), copying = device.time(copy);
  const c10::Stream side = device.new_stream();
  c10::Event copied(device.device().type());
  const double both = device.time([&] {
    c10::Event now(device.device().type());
    now.record(device.stream());
    now.block(side);
    {
      const c10::StreamGuard guard(side);
      copy();
    }
    copied.record(side);
    compute();
    copied.block(device.stream());
  });
  row("copying alone, computing alone, both at once",
      text("%.1f", copying) + text(" / %.1f", computing) + text(" / %.1f ms", both));
  row("share of the shorter that is hidden",
      text("%.0f %%", 100 * (copying + computing - both) / std::min(copying, computing)));
}

/// A few convolutions, by hand: no torch::nn, whose headers take half a minute to compile.
class Model {
 public:
  explicit Model(at::Device device) {
    const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
    int64_t channels = 3;
    for (const int64_t next : {32, 64, 128, 256}) {
      weights_.push_back(at::randn({next, channels, 3, 3}, options).mul_(0.05));
      channels = next;
    }
    weights_.push_back(at::randn({10, channels}, options).mul_(0.05));
    for (at::Tensor& weight : weights_) weight.requires_grad_();
  }

  void step(const at::Tensor& pictures, const at::Tensor& labels) {
    at::Tensor x = pictures;
    for (size_t i = 0; i + 1 < weights_.size(); ++i) {
      x = at::relu(at::conv2d(x, weights_[i], {}, /*stride=*/2, /*padding=*/1));
    }
    at::cross_entropy_loss(at::linear(x.mean({2, 3}), weights_.back()), labels).backward();
    const at::NoGradGuard no_grad;
    for (at::Tensor& weight : weights_) {
      weight.sub_(weight.grad(), 0.01);
      weight.mutable_grad().reset();
    }
  }

 private:
  std::vector<at::Tensor> weights_;
};

using Loader = stoker::DataLoader<Pictures>;

double steps_per_second(const Device& device, int64_t steps, const std::function<void()>& step) {
  for (int64_t i = 0; i < 10; ++i) step();
  device.wait();
  const auto begin = Clock::now();
  for (int64_t i = 0; i < steps; ++i) step();
  device.wait();
  return static_cast<double>(steps) / std::chrono::duration<double>(Clock::now() - begin).count();
}

void measure_training(const Device& device, Loader& loader, int64_t steps) {
  Model model(device.device());
  stoker::DevicePrefetcher batches(loader, device.device());
  auto it = batches.begin();
  const auto [pictures, labels] = *it;
  const double cached = steps_per_second(device, steps, [&] { model.step(pictures, labels); });
  const double loaded = steps_per_second(device, steps, [&] {
    ++it;
    const auto& [images, targets] = *it;
    model.step(images, targets);
  });
  row("training steps per second, one batch again and again", text("%.1f", cached));
  row("training steps per second, with the loader", text("%.1f", loaded));
  row("share of a perfect loader", text("%.1f %%", 100 * loaded / cached));
  row("of the loader's time, waiting for data",
      text("%.1f %%", 100 * loader.stats().epoch.wait_share()));
}

void measure_fork_in_use(const Device& device, const Arguments& arguments) {
  const auto begin = Clock::now();
  Loader loader(Pictures{256}, {.batch_size = 32,
                                .num_workers = arguments.num_workers,
                                .pin_memory = true,
                                .device = device.device()});
  int64_t samples = 0;
  for (const auto& [pictures, labels] : loader) samples += labels.size(0);
  device.wait();
  row("a loader made after the device was used, 256 samples",
      samples == 256 ? text("works, %.0f ms",
                            std::chrono::duration<double, std::milli>(Clock::now() - begin).count())
                     : "WRONG number of samples");
}

int run(const Arguments& arguments) {
  // First the loaders, then the device.
  stoker::DataLoader big(Big{arguments.megabytes << 20}, {.num_workers = 1, .pin_memory = true});
  const auto batches = static_cast<size_t>(arguments.steps + 20);
  Loader pictures(Pictures{batches * static_cast<size_t>(arguments.batch_size)},
                  {.batch_size = arguments.batch_size,
                   .num_workers = arguments.num_workers,
                   .pin_memory = true});
  const auto type = at::getAccelerator(false);
  if (!type || c10::impl::VirtualGuardImpl(*type).deviceCount() == 0) {
    std::puts("no GPU benchmark: libtorch finds no accelerator that can be used here");
    return 0;
  }
  const Device device(c10::impl::VirtualGuardImpl(*type).getDevice());
  row("device", device.device().str());
  measure_bandwidth(device, big, arguments.repeats);
  measure_overlap(device, big, arguments.repeats);
  measure_training(device, pictures, arguments.steps);
  measure_fork_in_use(device, arguments);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Measures the way of batches to an accelerator; says so where there is none.");
  app.option_defaults()->always_capture_default();
  const CLI::Range count(int64_t{1}, int64_t{1'000'000});
  app.add_option("--num-workers", arguments.num_workers, "Worker processes")->check(count);
  app.add_option("--megabytes", arguments.megabytes, "Of a batch, for the bandwidth")->check(count);
  app.add_option("--repeats", arguments.repeats, "Copies to time")->check(count);
  app.add_option("--batch-size", arguments.batch_size, "Pictures per training step")->check(count);
  app.add_option("--steps", arguments.steps, "Training steps to time")->check(count);
  CLI11_PARSE(app, argc, argv);
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stoker_bench_gpu: %s\n", error.what());
    return 1;
  }
}
