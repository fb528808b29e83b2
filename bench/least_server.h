// B13's floor: the least that a server must do that sends each token as an event of its own. It parses nothing, makes
// nothing and has one thread: once a step, one send() of a ready-made event for every stream.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/check.h"

namespace bz::bench {

class LeastServer {
 public:
  // Every request is answered with so many tokens, one a step.
  LeastServer(std::chrono::microseconds step, int tokens) : step_(step), tokens_(tokens) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    BZ_CHECK_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    BZ_CHECK_EQ(::listen(listener_, SOMAXCONN), 0);
    BZ_CHECK_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  int port() const { return port_; }

  // Until stdin ends.
  void run() {
    auto due = std::chrono::steady_clock::now();
    while (!stdin_ended()) {
      for (int fd; (fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK)) >= 0;) {
        const int on = 1;
        BZ_CHECK_EQ(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
        streams_.push_back({fd, 0});
      }
      std::erase_if(streams_, [this](Stream& s) { return !take_request(s); });
      for (Stream& s : streams_) send_event(s);
      due = std::max(due + step_, std::chrono::steady_clock::now());
      std::this_thread::sleep_until(due);
    }
  }

 private:
  struct Stream {
    int fd;
    int left;  // tokens of the answer
  };

  static bool stdin_ended() {
    pollfd in{STDIN_FILENO, POLLIN, 0};
    return ::poll(&in, 1, 0) > 0;
  }
  // Whatever comes while no answer is on its way is a request. False: the client has gone.
  bool take_request(Stream& s) const {
    if (s.left > 0) return true;
    char request[4096];
    const ssize_t n = ::recv(s.fd, request, sizeof(request), 0);
    if (n > 0) s.left = tokens_;
    if (n > 0 || (n < 0 && errno == EAGAIN)) return true;
    ::close(s.fd);
    return false;
  }
  void send_event(Stream& s) const {
    if (s.left == 0) return;
    const std::string& bytes = s.left == tokens_ ? first_ : s.left == 1 ? last_ : event_;
    BZ_CHECK_EQ(::send(s.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    --s.left;
  }

  static constexpr std::string_view kData =
      R"(data: {"id":"cmpl-64ce6af6dc353f7500000002","created":1796040667,"model":"mock","object":"text_completion",)"
      R"("choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":null}]})"
      "\n\n";
  static std::string chunk(std::string_view data) { return fmt::format("{:x}\r\n{}\r\n", data.size(), data); }

  std::chrono::microseconds step_;
  int tokens_;
  int listener_ = -1, port_ = 0;
  std::vector<Stream> streams_;
  std::string event_ = chunk(kData);
  std::string first_ =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + event_;
  std::string last_ = event_ + chunk("data: [DONE]\n\n") + "0\r\n\r\n";
};

}  // namespace bz::bench
