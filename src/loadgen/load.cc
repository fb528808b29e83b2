#include "loadgen/load.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <nlohmann/json.hpp>

namespace bz::loadgen {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::chrono::milliseconds kProgressPeriod{250};

double seconds_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

Result<tcp::resolver::results_type> resolve(asio::io_context& io, const Endpoint& to) {
  error_code ec;
  tcp::resolver resolver(io);
  auto found = resolver.resolve(to.host, to.port, ec);
  if (ec || found.empty()) return invalid_argument("--url: {}:{}: {}", to.host, to.port, ec.message());
  return found;
}

// Reads the events of one answer and notes when each came.
class StreamTimer {
 public:
  explicit StreamTimer(Clock::time_point begin) : begin_(begin), last_(begin) {}

  // Returns how many brought text.
  int64_t read(EventReader& events) {
    int64_t count = 0;
    std::string_view data;
    while (events.next(data)) count += on_event(data) ? 1 : 0;
    return count;
  }
  StreamResult finish() {
    result_.end = seconds_between(begin_, Clock::now());
    if (result_.error.empty() && !done_) result_.error = "the stream ended without [DONE]";
    if (result_.error.empty() && num_text_ == 0) result_.error = "the answer has no text";
    if (!counted_) result_.output_tokens = num_text_;
    return std::move(result_);
  }

 private:
  bool on_event(std::string_view data) {
    if (data == "[DONE]") {
      done_ = true;
      return false;
    }
    const json event = json::parse(data, nullptr, false);
    if (!event.is_object()) return fail("an event is not JSON");
    if (event.contains("error")) return fail(event["error"].dump());
    if (event.contains("usage") && event["usage"].is_object()) read_usage(event["usage"]);
    if (!brings_text(event)) return false;
    const auto now = Clock::now();
    if (num_text_++ == 0) {
      result_.first_token = seconds_between(begin_, now);
    } else {
      result_.gaps.push_back(seconds_between(last_, now));
    }
    last_ = now;
    return true;
  }
  static bool brings_text(const json& event) {
    const auto choices = event.find("choices");
    if (choices == event.end() || !choices->is_array() || choices->empty()) return false;
    const json& choice = choices->front();
    const auto has_text = [](const json& in, const char* key) {
      const auto text = in.is_object() ? in.find(key) : in.end();
      return text != in.end() && text->is_string() && !text->get_ref<const std::string&>().empty();
    };
    if (choice.contains("delta")) return has_text(choice["delta"], "content");
    return has_text(choice, "text");
  }
  // What is no number was not counted.
  void read_usage(const json& usage) {
    const auto read = [&](const char* key, int64_t& count) {
      const auto found = usage.find(key);
      if (found == usage.end() || !found->is_number_integer()) return false;
      count = found->get<int64_t>();
      return true;
    };
    read("prompt_tokens", result_.prompt_tokens);
    counted_ = read("completion_tokens", result_.output_tokens);
  }
  bool fail(std::string why) {
    if (result_.error.empty()) result_.error = std::move(why);
    return false;
  }

  Clock::time_point begin_, last_;
  StreamResult result_;
  int64_t num_text_ = 0;
  bool counted_ = false;
  bool done_ = false;
};

// The clients of one level, on one io_context.
class Load {
 public:
  Load(const Target& target, const std::vector<std::string>& bodies,
       const std::function<void(const Progress&)>& progress)
      : target_(target), bodies_(bodies), progress_(progress), ticks_(io_) {
    result_.streams.resize(bodies.size());
  }

  Result<LoadResult> run(int32_t concurrency) {
    BZ_ASSIGN(addresses_, resolve(io_, target_.endpoint));
    begin_ = Clock::now();
    const auto clients = std::min(static_cast<size_t>(concurrency), bodies_.size());
    for (size_t i = 0; i < clients; ++i) asio::co_spawn(io_, client(), asio::detached);
    if (progress_) tick();
    io_.run();
    result_.seconds = seconds_between(begin_, Clock::now());
    if (progress_) report();
    return std::move(result_);
  }

 private:
  // Takes one body after the other.
  asio::awaitable<void> client() {
    ++running_;
    tcp::socket socket(io_);
    while (next_ < bodies_.size()) {
      const size_t i = next_++;
      co_await stream(socket, i);
      ++done_;
    }
    if (--running_ == 0) ticks_.cancel();
  }

  asio::awaitable<void> stream(tcp::socket& socket, size_t i) {
    error_code ec;
    StreamResult& result = result_.streams[i];
    if (!socket.is_open()) {
      co_await asio::async_connect(socket, addresses_, asio::redirect_error(asio::use_awaitable, ec));
      if (ec) {
        result.error = "cannot connect: " + ec.message();
        socket.close(ec);
        co_return;
      }
      socket.set_option(tcp::no_delay(true), ec);
    }
    asio::steady_timer deadline(
        io_, std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(target_.timeout_seconds)));
    // It may be over when the answer is: then it is on its way and no longer to be cancelled.
    const auto waits = std::make_shared<bool>(true);
    deadline.async_wait([&socket, waits](error_code cancelled) {
      error_code ignored;
      if (!cancelled && *waits) socket.close(ignored);
    });
    StreamTimer timer(Clock::now());
    const std::string request =
        post_head(target_.endpoint, "/v1/completions", target_.api_key, bodies_[i].size()) + bodies_[i];
    co_await asio::async_write(socket, asio::buffer(request), asio::redirect_error(asio::use_awaitable, ec));
    ResponseReader response;
    std::string refusal;
    if (!ec) co_await read(socket, response, timer, refusal);
    deadline.cancel();
    *waits = false;
    result = timer.finish();
    if (ec || response.state() != ResponseReader::State::kDone) {
      result.error = "the connection was lost, or the answer took too long";
    } else if (response.status() != 200) {
      result.error = fmt::format("HTTP {}: {}", response.status(), refusal.substr(0, 300));
    }
    if (!result.error.empty() || !response.keep_alive()) socket.close(ec);
  }

  asio::awaitable<void> read(tcp::socket& socket, ResponseReader& response, StreamTimer& timer, std::string& refusal) {
    std::string buffer(16 << 10, '\0');
    EventReader events;
    while (response.state() == ResponseReader::State::kHeader || response.state() == ResponseReader::State::kBody) {
      error_code ec;
      const size_t n =
          co_await socket.async_read_some(asio::buffer(buffer), asio::redirect_error(asio::use_awaitable, ec));
      if (ec) {
        response.end();
        co_return;
      }
      response.feed(std::string_view(buffer.data(), n), events.input());
      if (response.status() == 200) {
        events_ += timer.read(events);
      } else {
        refusal = events.input();
      }
    }
  }

  void report() { progress_({done_, running_, bodies_.size(), events_, seconds_between(begin_, Clock::now())}); }
  void tick() {
    ticks_.expires_after(kProgressPeriod);
    ticks_.async_wait([this](error_code ec) {
      if (ec) return;
      report();
      if (running_ > 0) tick();
    });
  }

  const Target& target_;
  const std::vector<std::string>& bodies_;
  const std::function<void(const Progress&)>& progress_;
  asio::io_context io_{1};
  asio::steady_timer ticks_;
  tcp::resolver::results_type addresses_;
  Clock::time_point begin_;
  LoadResult result_;
  size_t next_ = 0, done_ = 0, running_ = 0;
  int64_t events_ = 0;
};

}  // namespace

Result<LoadResult> run_load(const Target& target, const std::vector<std::string>& bodies, int32_t concurrency,
                            const std::function<void(const Progress&)>& progress) {
  BZ_CHECK_GE(concurrency, 1);
  return Load(target, bodies, progress).run(concurrency);
}

Result<Answer> ask(const Target& target, const std::string& path, const std::string& body) {
  asio::io_context io;
  BZ_ASSIGN(const auto addresses, resolve(io, target.endpoint));
  tcp::socket socket(io);
  error_code ec;
  asio::connect(socket, addresses, ec);
  const Endpoint& to = target.endpoint;
  if (ec) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("--url: no server at {}:{} ({})", to.host, to.port, ec.message()), "url");
  }
  const std::string request =
      body.empty() ? get_head(to, path, target.api_key) : post_head(to, path, target.api_key, body.size()) + body;
  asio::write(socket, asio::buffer(request), ec);
  ResponseReader response;
  Answer answer;
  std::string buffer(16 << 10, '\0');
  while (!ec && response.state() != ResponseReader::State::kDone && response.state() != ResponseReader::State::kBad) {
    const size_t n = socket.read_some(asio::buffer(buffer), ec);
    if (!ec) response.feed(std::string_view(buffer.data(), n), answer.body);
  }
  if (ec) response.end();
  if (response.state() != ResponseReader::State::kDone) {
    return Status(StatusCode::kUnavailable, fmt::format("{}:{}{}: no whole HTTP answer", to.host, to.port, path));
  }
  answer.status = response.status();
  return answer;
}

Result<std::string> first_model(const Target& target) {
  BZ_ASSIGN(const Answer answer, ask(target, "/v1/models", ""));
  const json list = json::parse(answer.body, nullptr, false);
  const json id = list.is_object() ? list.value(json::json_pointer("/data/0/id"), json()) : json();
  if (answer.status == 200 && id.is_string()) return id.get<std::string>();
  return invalid_argument("--url: GET /v1/models answers {}: {}; is it an OpenAI server, and is --api-key right?",
                          answer.status, answer.body.substr(0, 200));
}

}  // namespace bz::loadgen
