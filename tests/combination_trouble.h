// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What goes wrong in a configuration's dataset.

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <stdexcept>
#include <string>

#include "combination.h"
#include "processes.h"

namespace stoker::combination {

inline bool holds(const Numbers& numbers, Number number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

class Trouble {
 public:
  explicit Trouble(Combination c) : c_(std::move(c)) {}

  const Combination& combination() const { return c_; }
  // From now on; the calls of all copies are counted together.
  void use(const Combination& c) { c_ = c; }

  // Called first for each sample; with_others: by a get_batch of more than one.
  void meet(Number index, bool with_others = false) const {
    meet_accident(index);
    if (index == c_.slow) std::this_thread::sleep_for(15ms);
    if (holds(c_.killers, index)) end_worker(c_.killers_end);
    if (holds(c_.bad, index) || (with_others && holds(c_.flaky, index))) {
      throw std::runtime_error("bad sample " + std::to_string(index) + ";");
    }
  }

 private:
  struct Calls {
    std::atomic<Number> count{0};
    std::atomic<bool> met[64]{};  // by index: the same sample is not hit twice
  };

  void meet_accident(Number index) const {
    if (c_.accidents.empty() || !holds(c_.accidents, ++calls_->count)) return;
    if (!calls_->met[index % 64].exchange(true)) end_worker(c_.accidents_end);
  }
  static void end_worker(Number how) {
    if (how == kKill) kill(getpid(), SIGKILL);
    if (how == kExit) _exit(3);
    std::this_thread::sleep_for(20s);  // kHang: the sample_timeout is to end it
    _exit(4);
  }

  Combination c_;
  Shared<Calls> calls_;
};

// Where no worker is there to be ended.
inline Combination without_deaths(Combination c) {
  c.bad.insert(c.bad.end(), c.killers.begin(), c.killers.end());
  c.killers.clear(), c.accidents.clear();
  return c;
}

}  // namespace stoker::combination
