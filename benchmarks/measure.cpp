// SPDX-License-Identifier: BSD-3-Clause
#include "measure.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <vector>

#include "batch_check.h"
#include "process_memory.h"

namespace bench {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Of this process alone, all of its threads.
double process_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What has been delivered, and what it cost, up to one moment.
struct Reading {
  Clock::time_point time;
  double cpu = 0;
  double consumer_cpu = 0;
  int64_t samples = 0;
  int64_t batches = 0;
};

class Meter {
 public:
  explicit Meter(const Job& job) : job_(job), check_(job.epoch_samples) {}

  void constructing() { constructed_ = Clock::now(); }
  bool enough() const { return enough_; }

  bool take(const at::Tensor& data, const at::Tensor& labels) {
    const auto received = Clock::now();
    if (now_.batches == 0) first_batch_ = received;
    if (now_.batches > 0 && begun_) gaps_.push_back(seconds_between(now_.time, received));
    begun_ = false;

    const double cpu_before = job_.meter_consumer ? thread_cpu_seconds() : 0;
    consume(data, labels);
    if (job_.meter_consumer) now_.consumer_cpu += thread_cpu_seconds() - cpu_before;

    now_.samples += data.size(0);
    ++now_.batches;
    now_.time = Clock::now();
    if (!window_open_ && seconds_between(first_batch_, now_.time) >= job_.warmup) open_window();
    return !update_enough();
  }

  void end_epoch() {
    if (enough_) return;  // it was left in the middle
    check_.epoch_complete();
    ++epochs_;
    begun_ = true;
    update_enough();
  }

  nlohmann::json result() const {
    nlohmann::json result;
    result["first_batch_ms"] = 1e3 * seconds_between(constructed_, first_batch_);
    result["epochs"] = epochs_;
    result["batches"] = now_.batches;
    if (!gaps_.empty()) result["gap_ms"] = 1e3 * median(gaps_);
    if (const int64_t batches = now_.batches - start_.batches; window_open_ && batches > 0) {
      const double seconds = seconds_between(start_.time, now_.time);
      const double consumer_cpu = now_.consumer_cpu - start_.consumer_cpu;
      result["samples_per_s"] = static_cast<double>(now_.samples - start_.samples) / seconds;
      result["main_cpu_us_per_batch"] =
          1e6 * (now_.cpu - start_.cpu - consumer_cpu) / static_cast<double>(batches);
    }
    return result;
  }

 private:
  void consume(const at::Tensor& data, const at::Tensor& labels) {
    if (!job_.copies()) return check(data, labels);
    const int64_t rows = data.size(0);
    if (!data_copy_.defined()) {
      data_copy_ = at::empty_like(data);
      labels_copy_ = at::empty_like(labels);
    }
    const at::Tensor data_copy = data_copy_.narrow(0, 0, rows).copy_(data);
    check(data_copy, labels_copy_.narrow(0, 0, rows).copy_(labels));
  }
  void check(const at::Tensor& data, const at::Tensor& labels) {
    if (!data.is_contiguous() || !labels.is_contiguous() || labels.numel() != data.size(0)) {
      throw std::runtime_error("wrong data: a batch's tensors are not as collated ones");
    }
    const int64_t width = data.numel() / data.size(0);
    check_.batch(data.const_data_ptr<float>(), labels.const_data_ptr<int64_t>(), data.size(0),
                 width);
  }

  void open_window() {
    window_open_ = true;
    now_.cpu = process_cpu_seconds();
    start_ = now_;
  }
  bool update_enough() {
    enough_ = window_open_ && seconds_between(start_.time, now_.time) >= job_.seconds &&
              epochs_ >= job_.min_epochs;
    if (enough_) now_.cpu = process_cpu_seconds();
    return enough_;
  }

  Job job_;
  BatchCheck check_;
  at::Tensor data_copy_;
  at::Tensor labels_copy_;
  Clock::time_point constructed_;
  Clock::time_point first_batch_;
  std::vector<double> gaps_;
  Reading now_;
  Reading start_;
  int64_t epochs_ = 0;
  bool begun_ = false;  // an epoch, whose first batch has not come yet
  bool window_open_ = false;
  bool enough_ = false;
};

}  // namespace

nlohmann::json measure(const Job& job, const std::function<RunEpoch()>& construct) {
  Meter meter(job);
  meter.constructing();
  const RunEpoch run_epoch = construct();
  while (!meter.enough()) {
    run_epoch([&](const auto& data, const auto& labels) { return meter.take(data, labels); });
    meter.end_epoch();
  }
  nlohmann::json result = meter.result();
  result["worker_private_kb"] = worker_private_kb();
  return result;
}

int report(int argc, char** argv, const char* rival, const char* about,
           const std::function<nlohmann::json(const Job&)>& run) {
  const Job job = job_from_command_line(argc, argv, about);
  // One ATen thread, for every rival: the cores are for the loaders, and a pool of OpenMP threads
  // beside them would measure the scheduler.
  at::set_num_threads(1);
  try {
    nlohmann::json result = run(job);
    result["rival"] = rival;
    std::cout << result << std::endl;
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::cerr << rival << ": " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}

}  // namespace bench
