// SPDX-License-Identifier: BSD-3-Clause
#include "memory/failure.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>

#include "slot_memory.h"

namespace stoker::detail {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct ImageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct NoException {};

template <class Thrown>
Failure failure_of_throwing(const Thrown& thrown) {
  return describe_exception(std::make_exception_ptr(thrown));
}

TEST(DescribeExceptionTest, TellsTheTypeThatWasThrownAndItsText) {
  const Failure failure = failure_of_throwing(ImageError("no JPEG"));
  EXPECT_THAT(failure.type_name, HasSubstr("ImageError"));
  EXPECT_THAT(failure.type_name, HasSubstr("stoker::"));  // demangled
  EXPECT_EQ(failure.text, "no JPEG");
  EXPECT_EQ(failure_of_throwing(std::out_of_range("17")).type_name, "std::out_of_range");
}

TEST(DescribeExceptionTest, TorchsErrorsComeWithoutBacktrace) {
  try {
    TORCH_CHECK(false, "shapes differ");
  } catch (...) {
    const Failure failure = describe_exception(std::current_exception());
    EXPECT_EQ(failure.type_name, "c10::Error");
    EXPECT_THAT(failure.text, AllOf(StartsWith("shapes differ"), Not(HasSubstr("frame #"))));
  }
}

TEST(DescribeExceptionTest, AnythingMayBeThrown) {
  EXPECT_EQ(failure_of_throwing(42).type_name, "int");
  EXPECT_EQ(failure_of_throwing(42).text, "an exception that is not a std::exception");
  EXPECT_THAT(failure_of_throwing(NoException{}).type_name, HasSubstr("NoException"));
}

template <class Inner, class Outer>
std::exception_ptr nested(const Inner& inner, const Outer& outer) {
  try {
    try {
      throw inner;
    } catch (...) {
      std::throw_with_nested(outer);
    }
  } catch (...) {
    return std::current_exception();
  }
}

TEST(DescribeExceptionTest, CausesAreToldBehindTheText) {
  const Failure failure = describe_exception(
      nested(ImageError("premature end of file"), std::runtime_error("cannot load photo.jpg")));
  EXPECT_EQ(failure.type_name, "std::runtime_error");
  EXPECT_THAT(failure.text, AllOf(StartsWith("cannot load photo.jpg; caused by stoker::"),
                                  HasSubstr("ImageError: premature end of file")));
  EXPECT_EQ(describe_exception(nested(42, NoException{})).text,
            "an exception that is not a std::exception; caused by int: an exception that is not a "
            "std::exception");
}

TEST(DescribeExceptionTest, TorchsErrorsAreCausesWithoutBacktrace) {
  try {
    try {
      TORCH_CHECK(false, "shapes differ");
    } catch (...) {
      std::throw_with_nested(ImageError("no mask"));
    }
  } catch (...) {
    EXPECT_EQ(describe_exception(std::current_exception()).text,
              "no mask; caused by c10::Error: shapes differ");
  }
}

// Each cause is the one before with a further one around it.
void throw_levels(int levels) {
  try {
    if (levels > 0) throw_levels(levels - 1);
  } catch (...) {
    std::throw_with_nested(std::runtime_error("level " + std::to_string(levels)));
  }
  if (levels == 0) throw std::runtime_error("level 0");
}

TEST(DescribeExceptionTest, EightCausesAreToldAndNoMore) {
  try {
    throw_levels(20);
  } catch (...) {
    EXPECT_THAT(describe_exception(std::current_exception()).text,
                AllOf(StartsWith("level 20; caused by std::runtime_error: level 19; "),
                      HasSubstr("level 12"), Not(HasSubstr("level 11"))));
  }
}

TEST(StoreFailureTest, EverythingComesBack) {
  HeapSlot memory;
  const Slot slot = memory.publish({1, 2});
  Failure sent{3, 4711, 17, "std::runtime_error", std::string(5000, 'x')};
  sent.text[4] = '\0';
  const Failure came = load_failure(slot, store_failure(slot, sent));
  EXPECT_EQ(came.worker_id, 3);
  EXPECT_EQ(came.pid, 4711);
  EXPECT_EQ(came.index, 17u);
  EXPECT_EQ(came.type_name, sent.type_name);
  EXPECT_EQ(came.text, sent.text);
}

TEST(StoreFailureTest, WhatIsAbsentStaysAbsent) {
  HeapSlot memory;
  const Slot slot = memory.publish({1});
  const Failure came = load_failure(slot, store_failure(slot, {}));
  EXPECT_FALSE(came.worker_id);
  EXPECT_FALSE(came.index);
  EXPECT_EQ(came.type_name, "");
  EXPECT_EQ(came.text, "");
}

TEST(StoreFailureTest, TwoFailuresLieBesideEachOther) {
  HeapSlot memory;
  const Slot slot = memory.publish({1, 2});
  const uint64_t first = store_failure(slot, {0, 1, 1, "A", "first"});
  const uint64_t second = store_failure(slot, {1, 2, 2, "B", "second"});
  EXPECT_EQ(load_failure(slot, first).text, "first");
  EXPECT_EQ(load_failure(slot, second).text, "second");
}

class FullSlotTest : public testing::Test {
 protected:
  FullSlotTest() : slot_(memory_.publish({10, 11, 12})) {
    while (slot_.allocate(4096)) {
    }
  }

  HeapSlot memory_;
  Slot slot_;
};

TEST_F(FullSlotTest, AFailureIsToldWithAsMuchTextAsFits) {
  const Failure sent{3, 4711, 11, "std::runtime_error", std::string(5000, 'x')};
  const Failure came = load_failure(slot_, store_failure(slot_, sent));
  EXPECT_EQ(came.worker_id, 3);
  EXPECT_EQ(came.index, 11u);
  EXPECT_EQ(came.type_name, sent.type_name);
  EXPECT_GT(came.text.size(), 300u);
  EXPECT_EQ(came.text, sent.text.substr(0, came.text.size()));
}

TEST_F(FullSlotTest, ALongTypeNameLeavesRoomForTheText) {
  const Failure came =
      load_failure(slot_, store_failure(slot_, {0, 1, 2, std::string(5000, 't'), "the text"}));
  EXPECT_THAT(came.type_name, StartsWith("ttt"));
  EXPECT_EQ(came.text, "the text");
}

TEST_F(FullSlotTest, AFailureLeavesTheBooksAlone) {
  store_failure(slot_, {0, 1, 2, std::string(5000, 't'), std::string(5000, 'x')});
  EXPECT_EQ(slot_.state(0), RowState::kPending);
  EXPECT_EQ(slot_.skip_rest(slot_.main(0)), 3u);
  EXPECT_EQ(slot_.num_samples(), 3u);
  EXPECT_EQ(slot_.indices()[0], 10u);
}

// Two workers that fail at once.
TEST_F(FullSlotTest, TheLowestFailureIsNotReplacedByALaterOne) {
  const auto fail = [this](uint32_t row) {
    slot_.records()[row] = store_failure(
        slot_, {row, 100 + row, slot_.indices()[row], "Error", "row " + std::to_string(row)});
    settle_rows(slot_, {row, 1}, row, RowState::kFailed);
  };
  fail(1);
  fail(2);
  EXPECT_TRUE(settle_rows(slot_, {0, 1}));
  MapFetcher fetcher(Counting{1});
  ASSERT_EQ(collate(slot_, fetcher, 0), SlotStatus::kFailed);
  EXPECT_EQ(failure_of(slot_).index, 11u);
  EXPECT_EQ(failure_of(slot_).text, "row 1");
}

TEST(LoadFailureTest, ADamagedOneIsRefused) {
  HeapSlot memory;
  const Slot slot = memory.publish({1});
  const uint64_t place = store_failure(slot, {0, 1, 2, "Type", "text"});
  const auto refused = [&](uint64_t at) {
    return text_of<std::runtime_error>([&] { load_failure(slot, at); });
  };
  const std::string expected = "stoker: the error of a batch in shared memory is damaged";
  EXPECT_THAT(refused(0), StartsWith(expected));
  EXPECT_THAT(refused(slot.bytes() - 8), StartsWith(expected));
  EXPECT_THAT(refused(UINT64_MAX), StartsWith(expected));
  for (const uint64_t of_length : {24, 28}) {
    const uint32_t length = UINT32_MAX;
    std::byte sound[sizeof length];
    std::memcpy(sound, slot.at(place + of_length), sizeof length);
    std::memcpy(slot.at(place + of_length), &length, sizeof length);
    EXPECT_THAT(refused(place), StartsWith(expected));
    std::memcpy(slot.at(place + of_length), sound, sizeof length);
  }
  EXPECT_EQ(load_failure(slot, place).text, "text");
}

TEST(MegabytesTest, AreGigabytesWhereTheyAreMany) {
  EXPECT_EQ(megabytes(0), "0 MB");
  EXPECT_EQ(megabytes(1'572'864), "1.5 MB");
  EXPECT_EQ(megabytes(uint64_t{999} << 20), "999 MB");
  EXPECT_EQ(megabytes(uint64_t{1000} << 20), "0.9766 GB");
  EXPECT_EQ(megabytes(uint64_t{12} << 30), "12 GB");
  EXPECT_EQ(megabytes(8'000'000'000'000), "7.276 TB");
}

}  // namespace
}  // namespace stoker::detail
