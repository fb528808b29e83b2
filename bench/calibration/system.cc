#include "calibration/system.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "calibration/team.h"

namespace bz::bench {
namespace {

constexpr int kPasses = 8;
constexpr size_t kWriteBytes = 64;
constexpr int kWritesPerDrain = 256;  // 16 KiB: below any socket buffer

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

double sha256_ns(int rounds) {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  const EVP_MD* sha256 = EVP_sha256();
  unsigned char in[72] = {}, out[EVP_MAX_MD_SIZE];
  const double t = best_seconds(1, kPasses, [&](int) {
    for (int i = 0; i < rounds; ++i) {
      EVP_DigestInit_ex(context, sha256, nullptr);
      EVP_DigestUpdate(context, in, sizeof(in));
      EVP_DigestFinal_ex(context, out, nullptr);
      in[0] = out[0];
    }
  });
  EVP_MD_CTX_free(context);
  return t / rounds * 1e9;
}

double write_null_ns(int rounds) {
  const int fd = open("/dev/null", O_WRONLY);
  if (fd < 0) fail("/dev/null");
  const char bytes[kWriteBytes] = {};
  const double t = best_seconds(1, kPasses, [&](int) {
    for (int i = 0; i < rounds; ++i) {
      if (write(fd, bytes, sizeof(bytes)) < 0) fail("write");
    }
  });
  close(fd);
  return t / rounds * 1e9;
}

struct Connection {
  int sender = -1;
  int receiver = -1;
};

Connection connect_loopback() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (listener < 0 || bind(listener, any, size) != 0 || listen(listener, 1) != 0) fail("loopback listen");
  if (getsockname(listener, any, &size) != 0) fail("getsockname");
  Connection c;
  c.sender = socket(AF_INET, SOCK_STREAM, 0);
  if (c.sender < 0 || connect(c.sender, any, size) != 0) fail("loopback connect");
  c.receiver = accept(listener, nullptr, nullptr);
  if (c.receiver < 0) fail("accept");
  close(listener);
  return c;
}

double write_tcp_ns(int rounds) {
  const Connection c = connect_loopback();
  const char bytes[kWriteBytes] = {};
  std::vector<char> drain(kWriteBytes * kWritesPerDrain);
  double best = 1e300;
  for (int pass = 0; pass < kPasses; ++pass) {
    double total = 0;
    for (int i = 0; i < rounds / kWritesPerDrain; ++i) {
      const auto start = std::chrono::steady_clock::now();
      for (int j = 0; j < kWritesPerDrain; ++j) {
        if (write(c.sender, bytes, sizeof(bytes)) < 0) fail("write");
      }
      total += seconds_since(start);
      size_t got = 0;
      while (got < drain.size()) {
        const ssize_t n = read(c.receiver, drain.data(), drain.size());
        if (n <= 0) fail("read");
        got += static_cast<size_t>(n);
      }
    }
    best = std::min(best, total / (rounds / kWritesPerDrain * kWritesPerDrain));
  }
  close(c.sender);
  close(c.receiver);
  return best * 1e9;
}

// Two threads take turns at a counter. They spin, so each needs a core of its own: 0 on a machine with one.
double handover_ns(int rounds) {
  if (std::thread::hardware_concurrency() < 2) return 0;
  alignas(64) std::atomic<int> turn{0};
  const double t = best_seconds(2, kPasses, [&](int index) {
    for (int i = 0; i < rounds; ++i) {
      while (turn.load(std::memory_order_acquire) != index) {
      }
      turn.store(1 - index, std::memory_order_release);
    }
  });
  return t / (2 * rounds) * 1e9;
}

}  // namespace

SystemCosts measure_system(bool quick) {
  const int rounds = quick ? 4096 : 32768;
  SystemCosts costs;
  costs.sha256_72_ns = sha256_ns(rounds);
  costs.write_null_ns = write_null_ns(rounds);
  costs.write_tcp_ns = write_tcp_ns(rounds);
  costs.handover_ns = handover_ns(rounds);
  return costs;
}

}  // namespace bz::bench
