// Connection's side of an Exchange: writes the answer through the connection for as long as there is one.
// Part of http_connection*.cc.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "server/http_connection.h"

namespace bz::server {

class Connection::ExchangeImpl : public Exchange {
 public:
  ExchangeImpl(Connection* connection, HttpRequest request)
      : begin(Clock::now()), connection_(connection), request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }
  std::string take_body() override { return std::move(request_.body); }

  void add_header(std::string name, std::string value) override {
    headers_.emplace_back(std::move(name), std::move(value));
  }

  void note(std::string_view name, int64_t value) override { notes.emplace_back(name, value); }
  std::string_view added_header(std::string_view name) const {
    for (const auto& [key, value] : headers_) {
      if (key == name) return value;
    }
    return {};
  }

  void reply(HttpReply reply) override {
    if (!connection_ || streaming_) return;
    Connection& c = *connection_;
    if (reply.close) c.keep_alive_ = false;
    std::string bytes = c.head(reply, Framing::kLength, headers_);
    if (!c.head_only_) bytes += reply.body;
    c.send(bytes);
    end();
  }

  void start_stream(const HttpReply& reply) override {
    if (!connection_ || streaming_) return;
    streaming_ = true;
    Connection& c = *connection_;
    if (reply.close || c.http_1_0_) c.keep_alive_ = false;
    c.send(c.head(reply, c.http_1_0_ ? Framing::kUntilClose : Framing::kChunked, headers_));
  }

  void write(std::string_view bytes) override {
    if (!connection_ || !streaming_ || bytes.empty()) return;
    Connection& c = *connection_;
    if (c.head_only_) return;
    if (c.http_1_0_) return c.send(bytes);
    std::string& chunk = c.host_.write_scratch;
    chunk.clear();
    fmt::format_to(std::back_inserter(chunk), "{:x}\r\n", bytes.size());
    chunk += bytes;
    chunk += "\r\n";
    c.send(chunk);
  }

  void finish() override {
    if (!connection_ || !streaming_) return;
    if (!connection_->http_1_0_ && !connection_->head_only_) connection_->send("0\r\n\r\n");
    end();
  }

  bool connected() const override { return connection_ != nullptr; }
  bool writable() const override { return connection_ && connection_->output_.empty(); }

  void watch(std::function<void()> on_writable, std::function<void()> on_closed) override {
    if (!connection_) return;
    on_writable_ = std::move(on_writable);
    on_closed_ = std::move(on_closed);
  }

  void socket_writable() {
    if (auto call = on_writable_) call();
  }
  // Nobody answered: another exchange is for the whole request.
  void let_go() {
    connection_ = nullptr;
    on_writable_ = nullptr;
    on_closed_ = nullptr;
  }
  // The connection is going away before the answer ended.
  void socket_closed() {
    connection_ = nullptr;
    on_writable_ = nullptr;
    if (auto call = std::exchange(on_closed_, nullptr)) call();
  }

  const Clock::time_point begin;
  Notes notes;

 private:
  void end() {
    Connection& c = *connection_;
    let_go();
    c.end_exchange();
  }

  Connection* connection_;
  HttpRequest request_;
  HeaderList headers_;
  std::function<void()> on_writable_, on_closed_;
  bool streaming_ = false;
};

}  // namespace bz::server
