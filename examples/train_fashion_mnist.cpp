// SPDX-License-Identifier: BSD-3-Clause
//
// Trains a small convolutional network on Fashion-MNIST: 60,000 pictures of clothes in ten classes,
// 28 by 28 pixels, cropped and flipped at random by the loader's workers. With --synthetic, on
// wave patterns that it makes itself.

#include <stoker/stoker.h>
#include <torch/torch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <numbers>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "idx_file.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSide = 28;
constexpr int64_t kPixels = kSide * kSide;
constexpr int64_t kClasses = 10;

struct Arguments {
  std::string data = "/usr/share/datasets/fashion-mnist";  // where Debian's package puts it
  bool synthetic = false;
  int64_t epochs = 2;
  int64_t batch_size = 64;
  int64_t num_workers = 2;
  double lr = 0.002;
  std::string device = "cpu";
  bool pin_memory = false;
  uint64_t seed = 1;
  int64_t steps = 0;
};

/// The --device is none.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Pictures {
  std::vector<uint8_t> pixels;  // kPixels each
  std::vector<uint8_t> labels;
};

/// The pictures, normalised; each time shifted by up to two pixels and perhaps mirrored if
/// `augment`.
class FashionMnist {
 public:
  FashionMnist(Pictures pictures, bool augment)
      : pictures_(std::move(pictures)), augment_(augment) {}

  size_t size() const { return pictures_.labels.size(); }

  std::tuple<torch::Tensor, int64_t> get(size_t index) const {
    torch::Tensor image = torch::empty({1, kSide, kSide});
    const View view = augment_ ? random_view() : View{};
    write(&pictures_.pixels[index * kPixels], view, image.mutable_data_ptr<float>());
    return {std::move(image), pictures_.labels[index]};
  }

 private:
  static constexpr int64_t kMaxShift = 2;
  struct View {
    int64_t down = 0;
    int64_t right = 0;
    bool mirrored = false;
  };

  // One draw for all three: a tensor operation costs more than the rest of get(). It comes from
  // torch's generator, so the loader makes it depend on the epoch and the sample's place in it
  // only.
  static View random_view() {
    constexpr int64_t kShifts = 2 * kMaxShift + 1;
    const auto draw = torch::randint(kShifts * kShifts * 2, {1}).item<int64_t>();
    return {draw / 2 / kShifts - kMaxShift, draw / 2 % kShifts - kMaxShift, draw % 2 == 1};
  }

  static void write(const uint8_t* picture, View view, float* out) {
    constexpr float kMean = 0.2860F, kDeviation = 0.3530F;  // of the training pictures
    const auto inside = [](int64_t at) { return 0 <= at && at < kSide; };
    for (int64_t y = 0; y < kSide; ++y) {
      const int64_t from_y = y - view.down;
      for (int64_t x = 0; x < kSide; ++x) {
        const int64_t from_x = (view.mirrored ? kSide - 1 - x : x) - view.right;
        const bool seen = inside(from_y) && inside(from_x);
        const int pixel = seen ? picture[from_y * kSide + from_x] : 0;
        *out++ = (static_cast<float>(pixel) / 255 - kMean) / kDeviation;
      }
    }
  }

  Pictures pictures_;
  bool augment_;
};

Pictures read_pictures(const std::string& folder, const std::string& part) {
  const std::string images_path = idx::find(folder, part + "-images-idx3-ubyte");
  const std::string labels_path = idx::find(folder, part + "-labels-idx1-ubyte");
  idx::Items images = idx::read(images_path, {kSide, kSide});
  idx::Items labels = idx::read(labels_path, {});
  if (images.size != labels.size) {
    throw std::runtime_error(labels_path + ": has " + std::to_string(labels.size) + " labels for " +
                             std::to_string(images.size) + " pictures in " + images_path);
  }
  for (const int label : labels.values) {
    if (label >= kClasses) {
      throw std::runtime_error(labels_path + ": has the label " + std::to_string(label) +
                               "; Fashion-MNIST has 0 to 9");
    }
  }
  return {std::move(images.values), std::move(labels.values)};
}

/// Noisy waves, at each picture another phase. The class is how many fit in the width (1 to 5) and
/// in the height (1 or 2), which shifting and mirroring do not change.
Pictures make_waves(size_t count, std::mt19937& random) {
  const auto wave = [&random](int64_t periods) {
    std::vector<double> values(kSide);
    const double phase = 2 * std::numbers::pi * (random() % 1000) / 1000;
    for (int64_t i = 0; i < kSide; ++i) {
      values[i] = std::sin(2 * std::numbers::pi * periods * i / kSide + phase);
    }
    return values;
  };
  Pictures waves;
  for (size_t i = 0; i < count; ++i) {
    const auto label = static_cast<uint8_t>(random() % kClasses);
    const std::vector<double> across = wave(1 + label % 5), along = wave(1 + label / 5);
    for (const double vertical : along) {
      for (const double horizontal : across) {
        const double noise = static_cast<double>(random() % 96) - 48;
        waves.pixels.push_back(static_cast<uint8_t>(128 + 79 * vertical * horizontal + noise));
      }
    }
    waves.labels.push_back(label);
  }
  return waves;
}

/// Training and test set.
std::pair<Pictures, Pictures> find_pictures(const Arguments& arguments) {
  if (arguments.synthetic) {
    std::mt19937 random(static_cast<uint32_t>(arguments.seed));
    Pictures train = make_waves(20'000, random);
    return {std::move(train), make_waves(4'000, random)};
  }
  try {
    return {read_pictures(arguments.data, "train"), read_pictures(arguments.data, "t10k")};
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(
        std::string(error.what()) +
        "\nThe files come with `apt-get install dataset-fashion-mnist`; --data "
        "names their folder; --synthetic needs none.");
  }
}

torch::Device parse_device(const std::string& name) {
  std::optional<torch::Device> device;
  try {
    device = torch::Device(name);
  } catch (const c10::Error&) {  // no device at all; said below
  }
  if (device && (device->is_cpu() || device->is_cuda())) return *device;
  throw DeviceError("--device " + name + ": give cpu, cuda or cuda:0, cuda:1, ...");
}

torch::nn::Sequential make_model() {
  using namespace torch::nn;
  return Sequential(Conv2d(Conv2dOptions(1, 16, 3).padding(1)), ReLU(), MaxPool2d(2),
                    Conv2d(Conv2dOptions(16, 32, 3).padding(1)), ReLU(), MaxPool2d(2), Flatten(),
                    Linear(32 * (kSide / 4) * (kSide / 4), 128), ReLU(), Linear(128, kClasses));
}

/// One line per epoch: on a terminal rewritten while it runs, elsewhere written at its end.
class Progress {
 public:
  Progress(int64_t epoch, int64_t batches) : epoch_(epoch), batches_(batches) {}
  ~Progress() {
    if (shown_) std::putchar('\n');
  }

  bool due() const { return live_ && Clock::now() - last_ > std::chrono::milliseconds(100); }

  void show(double loss, const stoker::WaitStats& stats) {
    last_ = Clock::now();
    const double seconds = std::chrono::duration<double>(last_ - start_).count();
    std::printf("%sepoch %lld: %lld/%lld batches, loss %.4f, %.0f samples/s, waited %.1f %%",
                live_ ? "\r\033[K" : "", static_cast<long long>(epoch_),
                static_cast<long long>(stats.batches), static_cast<long long>(batches_), loss,
                static_cast<double>(stats.samples) / seconds, 100 * stats.wait_share());
    std::fflush(stdout);
    shown_ = true;
  }

 private:
  int64_t epoch_;
  int64_t batches_;
  bool live_ = isatty(STDOUT_FILENO) != 0;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

using Loader = stoker::DataLoader<FashionMnist>;

/// The model, and what is needed to train it.
struct Training {
  torch::nn::Sequential model;
  torch::optim::Adam optimizer;
  torch::Device device;
};

void train_epoch(Training& training, Loader& loader, int64_t epoch, int64_t steps) {
  Progress progress(epoch, steps);
  torch::Tensor loss_sum = torch::zeros({}, training.device);
  int64_t step = 0;
  for (auto& [images, labels] : loader) {
    training.optimizer.zero_grad();
    const torch::Tensor loss =
        torch::nn::functional::cross_entropy(training.model->forward(images), labels);
    loss.backward();
    training.optimizer.step();
    loss_sum += loss.detach();
    ++step;
    if (progress.due()) progress.show(loss_sum.item<double>() / step, loader.stats().epoch);
    if (step == steps) break;
  }
  progress.show(loss_sum.item<double>() / step, loader.stats().epoch);
}

/// Share of the pictures whose class the model finds.
double accuracy(Training& training, Loader& loader) {
  const torch::NoGradGuard no_grad;
  torch::Tensor right = torch::zeros({}, torch::dtype(torch::kLong).device(training.device));
  for (auto& [images, labels] : loader) {
    right += training.model->forward(images).argmax(1).eq(labels).sum();
  }
  return right.item<double>() / static_cast<double>(loader.dataset().size());
}

void run(const Arguments& arguments) {
  const torch::Device device = parse_device(arguments.device);
  torch::manual_seed(arguments.seed);
  auto [train_pictures, test_pictures] = find_pictures(arguments);
  stoker::DataLoaderOptions options{.batch_size = arguments.batch_size,
                                    .shuffle = true,
                                    .num_workers = arguments.num_workers,
                                    .pin_memory = arguments.pin_memory,
                                    .device = device};
  // Before anything that starts threads or CUDA: here the loaders fork. Their batches arrive on the
  // device; that it can be used they find out themselves.
  Loader train_loader(FashionMnist(std::move(train_pictures), /*augment=*/true), options);
  options.shuffle = false;
  Loader test_loader(FashionMnist(std::move(test_pictures), /*augment=*/false), options);

  torch::nn::Sequential model = make_model();
  model->to(device);
  Training training{model, torch::optim::Adam(model->parameters(), arguments.lr), device};
  const auto all = static_cast<int64_t>(train_loader.size());
  const int64_t steps = arguments.steps > 0 ? std::min(arguments.steps, all) : all;
  for (int64_t epoch = 1; epoch <= arguments.epochs; ++epoch) {
    train_epoch(training, train_loader, epoch, steps);
    std::cout << train_loader.stats() << std::endl;
  }
  std::printf("Test accuracy: %.2f %%\n", 100 * accuracy(training, test_loader));
  const stoker::WaitStats& waits = train_loader.stats().total;
  std::printf("Training waited %.2f s for data in all, %.1f %% of its time.\n",
              std::chrono::duration<double>(waits.waited).count(), 100 * waits.wait_share());
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Trains a small network on Fashion-MNIST, fed by stoker's DataLoader.");
  app.option_defaults()->always_capture_default();
  const CLI::Range count(int64_t{0}, int64_t{1'000'000'000});
  app.add_option("--data", arguments.data, "Folder of the four idx files, gzipped or not");
  app.add_flag("--synthetic", arguments.synthetic, "Train on generated pictures, not on --data");
  app.add_option("--epochs", arguments.epochs, "Rounds of training")->check(count);
  app.add_option("--batch-size", arguments.batch_size, "Pictures per batch");
  app.add_option("--num-workers", arguments.num_workers, "Worker processes; 0 for none");
  app.add_option("--lr", arguments.lr, "Learning rate of Adam");
  app.add_option("--device", arguments.device, "cpu, cuda, cuda:0, ...");
  auto* pin = app.add_flag("--pin-memory,!--no-pin-memory", arguments.pin_memory,
                           "Batches in page-locked memory; the default unless --device is cpu");
  app.add_option("--seed", arguments.seed, "Seed of all randomness");
  app.add_option("--steps", arguments.steps, "Batches per epoch; 0: all there are")->check(count);
  CLI11_PARSE(app, argc, argv);
  if (pin->count() == 0) arguments.pin_memory = arguments.device != "cpu";

  try {
    run(arguments);
    return 0;
  } catch (const DeviceError& error) {
    std::cerr << "train_fashion_mnist: " << error.what() << "\n";
    return 2;
  } catch (const std::invalid_argument& error) {
    std::cerr << "train_fashion_mnist: " << error.what() << " (options are named alike, with --)\n";
    return 2;
  } catch (const c10::Error& error) {
    std::cerr << "train_fashion_mnist: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "train_fashion_mnist: " << error.what() << "\n";
  }
  return 1;
}
