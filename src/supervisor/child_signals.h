// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What signals and uncaught exceptions do in the processes that a loader forks.

namespace stoker::detail {

// Child only, while all signals are blocked: the program's handlers must not run here. What is sent
// to the whole process group (Ctrl-C, a batch system's warning) is the program's to answer, perhaps
// with handlers that it installs only later, and it needs its workers until then; so it is ignored.
// What the program ignores stays ignored.
void settle_signals();

// A terminate handler for a child. The program's own could end the process in its way, with exit
// handlers that are not for a child. So could its `main`, which an exception must not come to.
[[noreturn]] void end_by_exception();

}  // namespace stoker::detail
