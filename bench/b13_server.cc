// B13: what streaming costs the server, with an engine that costs nothing.
//
//   b13_server serve [--step-us N]        our server over a mock engine, on a free port (printed); ends with its stdin
//   b13_server least [--step-us N]        the floor of it (least_server.h), for answers of 400 tokens
//   b13_server load --port P --path /v1/completions --streams S --tokens T --seconds X
//                                         S connections that ask for T tokens each, again and again; prints JSON
//   b13_server get --port P --path /v1/models --streams S --seconds X
//
// The client counts events (what ends with an empty line) and checks that each answer has all its tokens. It is the
// same for our server and for the peer; what the server used is read from its /proc by the harness.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "least_server.h"
#include "loadgen/http_stream.h"
#include "server/mock_engine.h"
#include "server/server.h"

namespace bz {
namespace {

using Clock = std::chrono::steady_clock;

int serve(int step_us) {
  const auto tokenizer = formats::byte_tokenizer();
  server::MockEngine engine{std::chrono::microseconds(step_us)};
  server::ServerOptions options;
  options.http.port = 0;
  auto listening = server::Server::listen(options);
  BZ_CHECK_MSG(listening.ok(), "{}", listening.status().message());
  const auto server = std::move(listening).value();
  server->attach({&engine, tokenizer.get(), {}});
  std::printf("%d\n", server->port());
  std::fflush(stdout);
  std::thread io([&] { server->run(); });
  for (std::string line; std::getline(std::cin, line);) {
  }
  server->begin_drain(std::chrono::milliseconds(0));
  io.join();
  return 0;
}

int serve_least(int step_us, int tokens) {
  bench::LeastServer server{std::chrono::microseconds(step_us), tokens};
  std::printf("%d\n", server.port());
  std::fflush(stdout);
  server.run();
  return 0;
}

struct LoadOptions {
  int port = 0;
  std::string path;
  int streams = 64;
  int tokens = 400;
  double seconds = 2;
};

// One keep-alive connection that asks again as soon as it has its answer.
class Stream {
 public:
  Stream(const LoadOptions& o, std::string request) : request_(std::move(request)), tokens_(o.tokens) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(o.port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BZ_CHECK_MSG(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0, "no server on port {}",
                 o.port);
  }
  ~Stream() { ::close(fd_); }

  int fd() const { return fd_; }
  void ask() {
    reader_ = {};
    body_.clear();
    BZ_CHECK_EQ(::send(fd_, request_.data(), request_.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request_.size()));
  }
  // Reads what is there. True: the answer is complete.
  bool read(std::string& buffer) {
    const ssize_t n = ::recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    BZ_CHECK_GT(n, 0);
    reader_.feed(std::string_view(buffer.data(), static_cast<size_t>(n)), body_);
    BZ_CHECK(reader_.state() != loadgen::ResponseReader::State::kBad);
    return reader_.state() == loadgen::ResponseReader::State::kDone;
  }
  // Events of the answer; it must hold every token: a letter each in "text":"..." (tokens_ 0: any body will do).
  int64_t check() const {
    BZ_CHECK_EQ(reader_.status(), 200);
    if (tokens_ == 0) return 1;
    BZ_CHECK_MSG(body_.ends_with("data: [DONE]\n\n"), "the stream is not whole");
    int64_t events = 0, letters = 0;
    for (size_t at = 0, end; (end = body_.find("\n\n", at)) != std::string::npos; at = end + 2) {
      ++events;
      const std::string_view event = std::string_view(body_).substr(at, end - at);
      const size_t text = event.find("\"text\":");
      if (text == std::string_view::npos) continue;
      const size_t open = event.find('"', text + 7);
      letters += static_cast<int64_t>(event.find('"', open + 1) - open - 1);
    }
    BZ_CHECK_EQ(letters, tokens_);
    return events;
  }

 private:
  std::string request_;
  int tokens_;
  int fd_ = -1;
  loadgen::ResponseReader reader_;
  std::string body_;
};

int load(const LoadOptions& o) {
  const loadgen::Endpoint endpoint{"127.0.0.1", std::to_string(o.port), ""};
  const std::string body = fmt::format(R"({{"prompt":"abcdefgh","max_tokens":{},"stream":true}})", o.tokens);
  const std::string request = o.tokens > 0 ? loadgen::post_head(endpoint, o.path, "", body.size()) + body
                                           : loadgen::get_head(endpoint, o.path, "");
  const int poller = ::epoll_create1(0);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < o.streams; ++i) {
    streams.push_back(std::make_unique<Stream>(o, request));
    epoll_event event{EPOLLIN, {.ptr = streams.back().get()}};
    BZ_CHECK_EQ(::epoll_ctl(poller, EPOLL_CTL_ADD, streams.back()->fd(), &event), 0);
  }
  const auto begin = Clock::now(),
             end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(o.seconds));
  for (auto& stream : streams) stream->ask();
  int64_t events = 0, answers = 0;
  std::string buffer(256 << 10, '\0');
  std::vector<epoll_event> ready(256);
  for (size_t running = streams.size(); running > 0;) {
    const int n = ::epoll_wait(poller, ready.data(), static_cast<int>(ready.size()), 10'000);
    BZ_CHECK_MSG(n > 0, "the server sent nothing for ten seconds");
    for (int i = 0; i < n; ++i) {
      auto* stream = static_cast<Stream*>(ready[static_cast<size_t>(i)].data.ptr);
      if (!stream->read(buffer)) continue;
      events += stream->check();
      ++answers;
      if (Clock::now() < end) {
        stream->ask();
      } else {
        --running;
      }
    }
  }
  ::close(poller);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("{\"events\":%lld,\"answers\":%lld,\"tokens\":%lld,\"seconds\":%.6f}\n", static_cast<long long>(events),
              static_cast<long long>(answers), static_cast<long long>(answers) * o.tokens, seconds);
  return 0;
}

}  // namespace
}  // namespace bz

int main(int argc, char** argv) {
  CLI::App app("B13: the server over a mock engine, and its client");
  app.require_subcommand(1);
  int step_us = 1000;
  for (const char* name : {"serve", "least"}) {
    CLI::App* server = app.add_subcommand(name);
    server->add_option("--step-us", step_us, "a token for every running request each so many microseconds");
  }
  bz::LoadOptions o;
  for (const char* name : {"load", "get"}) {
    CLI::App* client = app.add_subcommand(name);
    client->add_option("--port", o.port)->required();
    client->add_option("--path", o.path)->required();
    client->add_option("--streams", o.streams);
    client->add_option("--tokens", o.tokens);
    client->add_option("--seconds", o.seconds);
  }
  CLI11_PARSE(app, argc, argv);
  if (app.got_subcommand("serve")) return bz::serve(step_us);
  if (app.got_subcommand("least")) return bz::serve_least(step_us, o.tokens);
  if (app.got_subcommand("get")) o.tokens = 0;
  return bz::load(o);
}
