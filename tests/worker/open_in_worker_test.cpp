// SPDX-License-Identifier: BSD-3-Clause

// What must not be shared through a fork: files, above all.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <stoker/datasets/concat.h>
#include <stoker/pread_file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "datasets.h"
#include "processes.h"

namespace stoker {
namespace {

using testing::HasSubstr;

struct Calls {
  std::atomic<int> opened{0};
  std::atomic<int> initialised{0};  // worker_init_fn
  std::atomic<int> wrong{0};        // not in order, or not told where
  std::atomic<bool> died{false};
};

// Counts what is called, in which order.
struct Opening {
  Shared<Calls> calls;
  bool has_init_fn = false;
  bool deadly = false;
  std::optional<WorkerInfo> opened = std::nullopt;  // in this process

  void open_in_worker(const WorkerInfo& info) {
    const WorkerInfo told = worker_info().value();
    if (opened || told.id != info.id || told.num_workers != info.num_workers) ++calls->wrong;
    if (has_init_fn && calls->initialised == 0) ++calls->wrong;
    opened = info;
    ++calls->opened;
  }
  int64_t get(size_t index) {
    if (!opened || opened->id != worker_info().value().id) ++calls->wrong;
    if (deadly && index == 7 && !calls->died.exchange(true)) kill(getpid(), SIGKILL);
    return static_cast<int64_t>(index);
  }
  size_t size() const { return 20; }
};
static_assert(OpensInWorker<Opening> && !OpensInWorker<Counting>);

TEST(OpenInWorkerTest, IsCalledInEachWorkerOnceAfterTheInitFunction) {
  Shared<Calls> calls;
  DataLoader loader(Opening{calls, true},
                    {.num_workers = 3, .worker_init_fn = [=](int64_t) { ++calls->initialised; }});
  for (int epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(epoch_of(loader), up_to(20));
  EXPECT_TRUE(eventually([&] { return calls->opened == 3; }));
  EXPECT_EQ(calls->wrong, 0);
  EXPECT_FALSE(loader.dataset().opened);  // not in this process
}

TEST(OpenInWorkerTest, IsCalledInAReplacementToo) {
  Shared<Calls> calls;
  DataLoader loader(Opening{calls, false, true}, {.num_workers = 1, .max_restarts = 1});
  EXPECT_EQ(epoch_of(loader), up_to(20));
  EXPECT_EQ(calls->opened, 2);
  EXPECT_EQ(calls->wrong, 0);
}

TEST(OpenInWorkerTest, WithoutWorkersTheProgramCallsItOnce) {
  Shared<Calls> calls;
  DataLoader loader(Opening{calls});
  EXPECT_EQ(calls->opened, 0);
  for (int epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(epoch_of(loader), up_to(20));
  EXPECT_EQ(calls->opened, 1);
  EXPECT_EQ(calls->wrong, 0);
  EXPECT_FALSE(worker_info());
}

// As long as the file is missing.
struct Missing {
  bool missing = true;

  void open_in_worker(const WorkerInfo&) {
    if (missing) throw std::domain_error("no such file");
  }
  int64_t get(size_t index) { return static_cast<int64_t>(index); }
  size_t size() const { return 20; }
};

TEST(OpenInWorkerTest, WhatItThrowsIsToldInEveryEpoch) {
  DataLoader loader(Missing{}, {.num_workers = 2, .persistent_workers = false});
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto error = error_of(loader);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->facts().type_name, "std::domain_error");
    EXPECT_THAT(error->what(), HasSubstr("stoker: open_in_worker of worker "));
    EXPECT_THAT(error->what(), HasSubstr(" threw std::domain_error: no such file"));
  }
  loader.dataset().missing = false;
  EXPECT_EQ(epoch_of(loader), up_to(20));
}

TEST(OpenInWorkerTest, WithoutWorkersWhatItThrowsComesAsItIs) {
  DataLoader loader(Missing{});
  EXPECT_THROW(loader.begin(), std::domain_error);
  EXPECT_THROW(loader.begin(), std::domain_error);
  EXPECT_FALSE(worker_info());
  loader.dataset().missing = false;
  EXPECT_EQ(epoch_of(loader), up_to(20));
}

// Writes what it fetches to a file of the process's, through a buffer.
struct Logging {
  std::string folder;
  Shared<std::atomic<int>> closed;
  std::ofstream log = {};

  void open_in_worker(const WorkerInfo&) {
    log.open(folder + "/" + std::to_string(getpid()), std::ios::app);
  }
  int64_t get(size_t index) {
    log << index << '\n';
    return static_cast<int64_t>(index);
  }
  size_t size() const { return 1000; }
  void close_in_worker() {
    if (!worker_info()) closed->fetch_add(1000);
    log.close();
    ++*closed;
  }
};
static_assert(ClosesInWorker<Logging> && !ClosesInWorker<Opening>);

class CloseInWorkerTest : public testing::Test {
 protected:
  CloseInWorkerTest() {
    std::string name = std::filesystem::temp_directory_path() / "stoker-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~CloseInWorkerTest() override { std::filesystem::remove_all(folder_); }

  Logging logging() { return {folder_, closed_}; }
  // All that was written, sorted.
  std::vector<int64_t> logged() {
    std::vector<int64_t> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      std::ifstream file(entry.path());
      for (int64_t index; file >> index;) all.push_back(index);
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  std::string folder_;
  Shared<std::atomic<int>> closed_;
};

TEST_F(CloseInWorkerTest, IsCalledInEachWorkerWhenTheLoaderEndsAndWhatItWritesIsComplete) {
  {
    DataLoader loader(logging(), {.batch_size = 10, .num_workers = 2});
    EXPECT_EQ(epoch_of(loader), up_to(1000));
    EXPECT_EQ(*closed_, 0);
  }
  EXPECT_EQ(*closed_, 2);
  EXPECT_EQ(logged(), up_to(1000));
}

TEST_F(CloseInWorkerTest, WithWorkersThatDoNotPersistItIsCalledAtTheEndOfTheEpoch) {
  DataLoader loader(logging(), {.batch_size = 10, .num_workers = 2, .persistent_workers = false});
  EXPECT_EQ(epoch_of(loader), up_to(1000));
  EXPECT_EQ(*closed_, 2);
  EXPECT_EQ(logged(), up_to(1000));
  EXPECT_EQ(epoch_of(loader), up_to(1000));
  EXPECT_EQ(*closed_, 4);
}

TEST_F(CloseInWorkerTest, WithoutWorkersTheProgramCallsItWhenTheLoaderEnds) {
  {
    DataLoader loader(logging(), {.batch_size = 10});
    EXPECT_EQ(epoch_of(loader), up_to(1000));
    EXPECT_EQ(epoch_of(loader), up_to(1000));
    EXPECT_EQ(*closed_, 0);
  }
  EXPECT_EQ(*closed_, 1);
  EXPECT_EQ(logged().size(), 2000u);
  { DataLoader loader(logging(), {.batch_size = 10}); }
  EXPECT_EQ(*closed_, 1) << "nothing was opened";
}

TEST_F(CloseInWorkerTest, DatasetsMadeOfOthersPassItOn) {
  for (const int64_t workers : {0, 2}) {
    *closed_ = 0;
    std::vector<Logging> both;
    both.push_back(logging());
    both.push_back(logging());
    {
      DataLoader loader(ConcatDataset(std::move(both)), {.batch_size = 10, .num_workers = workers});
      EXPECT_EQ(epoch_of(loader).size(), 2000u);
    }
    EXPECT_EQ(*closed_, workers == 0 ? 2 : 4);
  }
}

// Its worker is told to stop, and closes for longer than a sample would be waited for.
TEST(CloseInWorkersTest, MayTakeAWhile) {
  struct Slow {
    Shared<std::atomic<int>> closed;
    int64_t get(size_t index) { return static_cast<int64_t>(index); }
    size_t size() const { return 20; }
    void close_in_worker() {
      std::this_thread::sleep_for(1500ms);
      ++*closed;
    }
  };
  Shared<std::atomic<int>> closed;
  {
    DataLoader loader(Slow{closed}, {.num_workers = 2});
    EXPECT_EQ(epoch_of(loader), up_to(20));
  }
  EXPECT_EQ(*closed, 2);
}

struct FailingToClose {
  int64_t get(size_t index) { return static_cast<int64_t>(index); }
  size_t size() const { return 20; }
  void close_in_worker() { throw std::domain_error("disk full"); }
};

TEST(CloseInWorkersTest, WhatItThrowsIsPrinted) {
  for (const int64_t workers : {0, 1}) {
    testing::internal::CaptureStderr();
    {
      DataLoader loader(FailingToClose{}, {.num_workers = workers});
      EXPECT_EQ(epoch_of(loader), up_to(20));
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "stoker: close_in_worker threw std::domain_error: disk full\n");
  }
}

// Record i of the file is the number i.
class FilesTest : public testing::Test {
 protected:
  static constexpr size_t kRecords = 2000;

  FilesTest() {
    std::string name = std::filesystem::temp_directory_path() / "stoker-XXXXXX";
    close(mkstemp(name.data()));
    path_ = name;
    std::ofstream file(path_, std::ios::binary);
    for (int64_t i = 0; i < static_cast<int64_t>(kRecords); ++i) {
      file.write(reinterpret_cast<const char*>(&i), sizeof i);
    }
  }
  ~FilesTest() override { std::filesystem::remove(path_); }

  template <class Dataset>
  void expect_all(Dataset dataset) {
    for (const int64_t workers : {0, 4}) {
      DataLoader loader(std::move(dataset), {.batch_size = 10, .num_workers = workers});
      EXPECT_EQ(epoch_of(loader), up_to(kRecords));
      dataset = std::move(loader.dataset());
    }
  }

  std::string path_;
};

struct Pread {
  PreadFile file;
  int64_t get(size_t index) {
    int64_t record = -1;
    file.read_at(index * sizeof record, std::as_writable_bytes(std::span(&record, 1)));
    return record;
  }
  size_t size() const { return file.size() / sizeof(int64_t); }
};

TEST_F(FilesTest, APreadFileOpenedBeforeTheForkReadsTheRightBytes) {
  expect_all(Pread{PreadFile(path_)});
}

// Seeks, and reads from there.
struct Seeking {
  std::string path;
  std::ifstream file = {};

  void open_in_worker(const WorkerInfo&) { file.open(path, std::ios::binary); }
  int64_t get(size_t index) {
    int64_t record = -1;
    file.seekg(static_cast<std::streamoff>(index * sizeof record));
    std::this_thread::yield();  // another worker's turn
    file.read(reinterpret_cast<char*>(&record), sizeof record);
    return record;
  }
  size_t size() const { return std::filesystem::file_size(path) / sizeof(int64_t); }
};

TEST_F(FilesTest, AFileOpenedInTheWorkerReadsTheRightBytesWhateverReadsIt) {
  for (const int64_t workers : {0, 4}) {
    DataLoader loader(Seeking{path_}, {.batch_size = 10, .num_workers = workers});
    EXPECT_EQ(epoch_of(loader), up_to(kRecords));
  }
}

}  // namespace
}  // namespace stoker
