// Costs of B0 that are not arithmetic: a hash of one cache block, the system call that sends a
// token, and what it costs two cores to meet.
#pragma once

namespace bz::bench {

struct SystemCosts {
  double sha256_72_ns = 0;   // OpenSSL over 72 bytes: parent hash, 8 tokens, salt
  double write_null_ns = 0;  // write() of 64 bytes to /dev/null: the system call alone
  double handover_ns = 0;    // one thread sees what another wrote: a barrier is two; tells where the cores lie
  double write_tcp_ns = 0;   // to a loopback connection whose other end is read now and then
};

SystemCosts measure_system(bool quick);

}  // namespace bz::bench
