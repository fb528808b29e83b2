#include "server/services.h"

#include <utility>

#include "base/check.h"
#include "server/openai_response.h"

namespace bz::server {

void Services::with_stats(TakeStats done) {
  if (!backend) return done({});
  waiting_.push_back(std::move(done));
  ask_engine();
}

void Services::ask_engine() {
  if (!asking_.empty() || waiting_.empty()) return;
  asking_.swap(waiting_);
  auto task = [this, engine = backend->engine] {
    auto stats = std::make_shared<engine::EngineStats>(engine->stats());
    http->post([this, stats] {
      for (const TakeStats& done : std::exchange(asking_, {})) done(*stats);
      ask_engine();
    });
  };
  BZ_CHECK(observer->submit(0, std::move(task)));  // its only task
}

bool Services::queue_is_full() const {
  if (!options.max_waiting_requests) return false;
  return choices_in_engine >= int64_t{backend->engine->info().max_num_seqs} + *options.max_waiting_requests;
}

HttpReply Services::refuse_full_queue() {
  ++metrics.queue_full;
  return error_reply(503, "too many requests wait; try again later", {}, "queue_full");
}

void Services::reply(Exchange& exchange, std::string_view route, HttpReply answer) {
  ++metrics.responses[{std::string(route), answer.status}];
  exchange.reply(std::move(answer));
}

}  // namespace bz::server
