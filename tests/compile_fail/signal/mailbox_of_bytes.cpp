// expect: (use of deleted function|call to deleted (member )?function)[^\n]*post
// SPDX-License-Identifier: Apache-2.0
#include <warmset/signal/mailbox.hpp>

void tell(warmset::signal::mailbox<> box) {
#ifdef WARMSET_TWIN_OK
  box.post(warmset::u32{1});
#else
  box.post(static_cast<unsigned char>(1));
#endif
}
