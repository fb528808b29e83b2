#include "server/services.h"

namespace bz::server {

void Services::with_stats(std::function<void(const engine::EngineStats&)> done) {
  if (!backend) return done(last_stats_);
  auto task = [this, engine = backend->engine, done] {
    auto stats = std::make_shared<engine::EngineStats>(engine->stats());
    http->post([this, stats, done] {
      last_stats_ = *stats;
      done(*stats);
    });
  };
  // Many askers at once: what the last one heard will do.
  if (!observer->submit(std::move(task))) done(last_stats_);
}

void Services::reply(Exchange& exchange, std::string_view route, HttpReply answer) {
  ++metrics.responses[{std::string(route), answer.status}];
  exchange.reply(std::move(answer));
}

}  // namespace bz::server
