// RawClient: one loopback connection that sends what it is told, byte for byte, and reads answers. For tests: every
// wait is bounded.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/check.h"

namespace bz::server {

struct RawAnswer {
  int status = 0;
  std::string head;
  std::string body;  // of a chunked answer: joined
  bool complete = false;

  std::string header(const std::string& lower_name) const {
    const auto found = headers.find(lower_name);
    return found == headers.end() ? "" : found->second;
  }
  std::map<std::string, std::string> headers;  // names in lower case
};

class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    BZ_CHECK(fd_ >= 0);
    if (receive_buffer) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  bool open() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // False: the server does not take it (any more).
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      pollfd p{fd_, POLLOUT, 0};
      if (::poll(&p, 1, kPatienceMs) <= 0) return false;
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  bool post(std::string_view path, std::string_view body, std::string_view headers = {}) {
    return send(fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}", path, headers,
                            body.size(), body));
  }
  bool get(std::string_view path, std::string_view headers = {}) {
    return send(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, headers));
  }

  // Reads until `text` has come; what came up to its end is returned and consumed. Empty: it did not come.
  std::string read_until(std::string_view text) {
    for (;;) {
      const size_t at = input_.find(text);
      if (at != std::string::npos) return take(at + text.size());
      if (!read_more()) return {};
    }
  }
  std::string read_exactly(size_t n) {
    while (input_.size() < n) {
      if (!read_more()) return {};
    }
    return take(n);
  }
  std::string read_to_end() {
    while (read_more()) {
    }
    return take(input_.size());
  }
  // True if the server closed the connection (and sent nothing more).
  bool closed_by_server() { return !read_more() && eof_ && input_.empty(); }

  RawAnswer read_answer(bool head_only = false) {
    RawAnswer a = read_head();
    if (a.status == 0) return a;
    if (head_only || a.status == 204 || a.status == 100) {
      a.complete = true;
    } else if (a.header("transfer-encoding") == "chunked") {
      read_chunks(a);
    } else if (!a.header("content-length").empty()) {
      const size_t n = std::stoul(a.header("content-length"));
      a.body = read_exactly(n);
      a.complete = a.body.size() == n;
    } else {
      a.body = read_to_end();
      a.complete = eof_;
    }
    return a;
  }
  RawAnswer read_head() {
    RawAnswer a;
    a.head = read_until("\r\n\r\n");
    if (a.head.size() < 12) return a;
    a.status = std::atoi(a.head.c_str() + 9);
    size_t line = a.head.find("\r\n") + 2;
    while (line + 2 < a.head.size()) {
      const size_t end = a.head.find("\r\n", line);
      const size_t colon = a.head.find(": ", line);
      std::string name = a.head.substr(line, colon - line);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      a.headers[name] = a.head.substr(colon + 2, end - colon - 2);
      line = end + 2;
    }
    return a;
  }
  // The next chunk of a chunked body; empty at its end.
  std::string read_chunk() {
    const std::string size = read_until("\r\n");
    if (size.empty()) return {};
    const size_t n = std::stoul(size, nullptr, 16);
    const std::string chunk = read_exactly(n + 2);
    return chunk.substr(0, n);
  }

 private:
  static constexpr int kPatienceMs = 5000;

  void read_chunks(RawAnswer& a) {
    for (;;) {
      const std::string size = read_until("\r\n");
      if (size.empty()) return;
      const size_t n = std::stoul(size, nullptr, 16);
      const std::string chunk = read_exactly(n + 2);
      if (chunk.size() != n + 2) return;
      a.body.append(chunk, 0, n);
      if (n == 0) break;
    }
    a.complete = true;
  }
  std::string take(size_t n) {
    std::string out = input_.substr(0, n);
    input_.erase(0, n);
    return out;
  }
  bool read_more() {
    pollfd p{fd_, POLLIN, 0};
    if (::poll(&p, 1, kPatienceMs) <= 0) return false;
    char buffer[65536];
    const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
    eof_ = n <= 0;
    if (n <= 0) return false;
    input_.append(buffer, static_cast<size_t>(n));
    return true;
  }

  int fd_;
  bool connected_ = false;
  bool eof_ = false;
  std::string input_;
};

}  // namespace bz::server
