// SPDX-License-Identifier: BSD-3-Clause

// Whole configurations, drawn from a seed, beside a serial model of a loader: each in a child
// process, so that a crash or a hang is a finding. One that fails is printed and made smaller.
//
//   STOKER_COMBINATION_SECONDS  for how long (60)
//   STOKER_COMBINATION_SEED     only that configuration
//   STOKER_COMBINATION_ONLY     only such as "on_error!=kSkip,device=1,bad={}", with the names and
//                               values that are printed

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "combination.h"
#include "combination_run.h"
#include "processes.h"
#include "support.h"

namespace stoker::combination {
namespace {

// How long a loader may take for a batch, and a child for all.
struct Patience {
  std::chrono::seconds timeout;
  unsigned alarm;
};
constexpr Patience kPatience{10s, 60};
constexpr Patience kShort{4s, 12};  // while it is made smaller

struct Report {
  std::array<char, 32> stage;
  std::array<char, 4000> text;
};

class Silent final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Orphans come to this process, which is their subreaper.
std::string processes_left() {
  const auto none = [] {
    for (;;) {
      const pid_t pid = waitpid(-1, nullptr, WNOHANG);
      if (pid <= 0) return pid < 0;
    }
  };
  if (eventually(none, 3s)) return "";
  std::string text = "processes: left behind:";
  for (const pid_t pid : children_of(getpid())) {
    text.append(" ").append(process_entry(pid).name);
    kill(pid, SIGKILL);
  }
  eventually(none);
  return text;
}

std::string try_in_child(const Combination& c, Patience patience) {
  Shared<Report> report;
  const auto write = [](auto& to, const char* text) {
    std::snprintf(to.data(), to.size(), "%s", text);
  };
  const pid_t pid = fork_child([&] {
    alarm(patience.alarm);
    Silent silent;
    const c10::WarningUtils::WarningHandlerGuard guard(&silent);
    std::string text;
    try {
      text = finding_of(c, patience.timeout,
                        [&](const char* stage) { write(report->stage, stage); });
    } catch (const std::exception& error) {
      text = "thrown: in " + std::string(report->stage.data()) + ": " + error.what();
    }
    write(report->text, text.c_str());
  });
  const int status = wait_for(pid);
  const std::string left = processes_left();
  if (status != 0) {
    return "ended: by " + describe_end(status) + " in " + report->stage.data();
  }
  const std::string text = report->text.data();
  return text.empty() ? left : text;
}

// A finding without its numbers.
std::string kind_of(const std::string& finding) {
  if (finding.starts_with("ended:")) return finding;
  std::string kind;
  for (const char letter : finding.substr(0, finding.find("; came"))) {
    const bool digit = std::isdigit(static_cast<unsigned char>(letter)) != 0;
    if (!digit) kind += letter;
    if (digit && (kind.empty() || kind.back() != '#')) kind += '#';
    if (kind.ends_with("{#, #")) kind.resize(kind.size() - 3);
  }
  return kind.substr(0, 60);
}

// Halves what can be halved while it still fails in that way.
Combination shrink(Combination c, const std::string& kind) {
  const std::string family = kind.substr(0, kind.find(':'));
  const auto end = Clock::now() + 60s;
  int tries = 0;
  for (bool again = true; again;) {
    again = false;
    for (const Combination& less : smaller(c)) {
      if (++tries > 60 || Clock::now() > end) return c;
      if (kind_of(try_in_child(less, kShort)).substr(0, family.size()) != family) continue;
      c = less;
      again = true;
      break;
    }
  }
  return c;
}

// What STOKER_COMBINATION_ONLY asks for.
class Only {
 public:
  Only() {
    const char* given = std::getenv("STOKER_COMBINATION_ONLY");
    std::istringstream text(given != nullptr ? given : "");
    for (std::string part; std::getline(text, part, ',');) {
      const size_t at = part.find('=');
      if (at == std::string::npos || at == 0) throw std::invalid_argument("no condition: " + part);
      const bool unlike = part[at - 1] == '!';
      conditions_.push_back({part.substr(0, at - (unlike ? 1 : 0)), part.substr(at + 1), unlike});
    }
  }
  bool allows(const Combination& c) const {
    bool all = true;
    for (const Condition& condition : conditions_) {
      bool known = false;
      visit_fields(c, [&](const char* name, const auto& value) {
        if (condition.name != name) return;
        known = true;
        if ((text_of(name, value) == condition.value) == condition.unlike) all = false;
      });
      if (!known) throw std::invalid_argument("no field of that name: " + condition.name);
    }
    return all;
  }

 private:
  struct Condition {
    std::string name, value;
    bool unlike;
  };
  std::vector<Condition> conditions_;
};

struct Finding {
  int count = 0;
  std::vector<uint64_t> seeds;
  std::string text;  // of the first
};

struct Counts {
  int tried = 0, deaths = 0, resumes = 0, devices = 0, streams = 0, errors = 0;
  void add(const Combination& c) {
    ++tried;
    deaths += !c.accidents.empty() || !c.killers.empty();
    resumes += !c.stop_after.empty();
    devices += c.device != 0;
    streams += c.dataset == kStream;
    errors += !c.bad.empty() || !c.flaky.empty();
  }
};

void print(const std::map<std::string, Finding>& findings) {
  int shown = 0;
  for (const auto& [kind, finding] : findings) {
    const uint64_t seed = finding.seeds.front();
    std::cout << "\nFINDING in " << finding.count << " configurations: " << finding.text
              << "\n  STOKER_COMBINATION_SEED=" << seed << "; also";
    for (const uint64_t other : finding.seeds) std::cout << " " << other;
    std::cout << "\n  " << describe(draw(seed)) << std::endl;
    if (++shown > 10) continue;
    std::cout << "  smaller: " << describe(shrink(draw(seed), kind)) << std::endl;
  }
}

TEST(CombinationsTest, EveryConfigurationYieldsWhatTheDocumentsSay) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const char* one = std::getenv("STOKER_COMBINATION_SEED");
  const char* seconds = std::getenv("STOKER_COMBINATION_SECONDS");
  const auto start = Clock::now();
  const auto end = start + std::chrono::seconds(seconds != nullptr ? std::atol(seconds) : 60);
  const Only only;
  std::mt19937_64 seeds(test_seed());
  Counts counts;
  std::map<std::string, Finding> findings;
  do {
    const uint64_t seed = one != nullptr ? std::strtoull(one, nullptr, 10) : seeds() >> 32;
    const Combination c = draw(seed);
    if (one != nullptr) std::cout << describe(c) << std::endl;
    if (one == nullptr && !only.allows(c)) continue;
    counts.add(c);
    const std::string text = try_in_child(c, kPatience);
    if (text.empty()) continue;
    Finding& finding = findings[kind_of(text)];
    if (++finding.count == 1) finding.text = text;
    if (finding.count <= 8) finding.seeds.push_back(seed);
    if (finding.count <= 20) std::cout << "seed " << seed << ": " << text << std::endl;
  } while (one == nullptr && Clock::now() < end);
  const double minutes = std::chrono::duration<double>(Clock::now() - start).count() / 60;
  std::cout << counts.tried << " configurations, " << int(counts.tried / minutes)
            << " a minute; with deaths " << counts.deaths << ", resumed " << counts.resumes
            << ", to a device " << counts.devices << ", streams " << counts.streams
            << ", with errors " << counts.errors << std::endl;
  print(findings);
  EXPECT_TRUE(findings.empty()) << findings.size() << " kinds of findings";
}

}  // namespace
}  // namespace stoker::combination
