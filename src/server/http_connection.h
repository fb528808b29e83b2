// Connection: one socket. A read loop that is always on (so that a client's leaving is seen while its answer is being
// made), a parser, at most one exchange, and an output buffer that is empty unless the client reads slowly.
//
// Everything runs on the IO thread. The server owns connections; an Exchange points back to its connection until it
// ended or the connection did.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>

#include "server/http.h"
#include "server/http_parser.h"

namespace bz::server {

using Clock = std::chrono::steady_clock;
class Connection;

// What connections share; outlives them.
struct ConnectionHost {
  HttpOptions options;
  HttpHandlers handlers;
  std::function<void(Connection*)> forget;  // the connection is closed
  AccessLog access_log;                     // may be empty
  bool draining = false;
  int64_t body_bytes = 0;  // of requests being read, all connections
  HttpStats stats;
  std::string date;           // for the Date header, renewed by the sweep
  std::string read_buffer;    // one for all: a read is parsed before the next one starts
  std::string write_scratch;  // likewise
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionHost& host, boost::asio::ip::tcp::socket socket);
  ~Connection();

  void start();
  // Acts on deadlines that passed.
  void sweep(Clock::time_point now);
  // Ends after the running answer, at once if there is none.
  void drain();
  // Ends now; a running exchange is told.
  void abort();

 private:
  class ExchangeImpl;
  void wait_readable();
  void on_readable();
  void feed(std::string_view fresh);
  void parse(std::string_view& bytes);
  bool on_header();
  bool worth_its_body();
  void dispatch();
  void begin_exchange(HttpRequest request, bool keep_alive);
  void call(const HttpHandlers::Handler& handler);
  void refuse(int status, std::string_view message);
  void end_exchange();
  void log_access(const ExchangeImpl& exchange, bool cut_off);

  // How the client finds the body's end.
  enum class Framing { kLength, kChunked, kUntilClose };
  std::string head(const HttpReply& reply, Framing framing, const HeaderList& more);
  void send(std::string_view bytes);
  void wait_writable();
  void on_writable();
  void fail_soon();
  void close_when_sent();
  void close();

  ConnectionHost& host_;
  boost::asio::ip::tcp::socket socket_;
  RequestParser parser_;
  std::shared_ptr<ExchangeImpl> exchange_;
  std::string input_;   // read but not parsed: pipelined requests
  std::string output_;  // written but not taken by the socket
  std::string client_;  // its address
  int64_t body_bytes_ = 0;
  int64_t answer_bytes_ = 0;  // of the answer under way
  int answer_status_ = 0;     // likewise; 0: nothing of it was sent
  Clock::time_point since_;   // of the state the deadlines are about
  bool keep_alive_ = true;
  bool http_1_0_ = false;
  bool head_only_ = false;
  bool waiting_readable_ = false;
  bool waiting_writable_ = false;
  bool parsing_ = false;
  bool header_seen_ = false;
  bool closing_ = false;  // no further request; close once output_ is sent
  bool discarding_ =
      false;  // sent; reading off the rest of a refused request, so that the answer is not lost to a reset
  bool closed_ = false;
};

}  // namespace bz::server
