// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Tests only: steps of the way to the device that can be left out, to prove that the tests notice.

namespace stoker::detail {

struct DeviceFaults {
  bool no_wait = false;           // the consumer's stream does not wait for the copies
  bool no_record_stream = false;  // device memory is not known to be used on the consumer's stream
  bool early_reuse = false;       // a slot is free before the copies out of it are done
  bool unguarded = false;         // nobody hears of the program's own copies
};

inline DeviceFaults device_faults;

}  // namespace stoker::detail
