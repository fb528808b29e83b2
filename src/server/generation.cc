#include "server/generation.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "server/logprobs_json.h"

namespace bz::server {
namespace {

using std::chrono::steady_clock;

double seconds(steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Generation::Generation(Services& services, std::shared_ptr<Exchange> exchange, PreparedRequest prepared,
                       steady_clock::time_point arrival)
    : services_(services),
      exchange_(std::move(exchange)),
      prepared_(std::move(prepared)),
      writer_(prepared_.request.chat, services.new_id(prepared_.request.chat ? "chatcmpl-" : "cmpl-"),
              std::time(nullptr), services.backend->engine->info().model_name, prepared_.request.include_usage),
      arrival_(arrival) {}

std::string_view Generation::route() const {
  return prepared_.request.chat ? "/v1/chat/completions" : "/v1/completions";
}

void Generation::start() {
  const GenerationRequest& r = prepared_.request;
  const auto self = shared_from_this();
  // Asked before the body was read, too; others may have come while this one's was tokenised.
  if (services_.queue_is_full()) return services_.reply(*exchange_, route(), services_.refuse_full_queue());
  exchange_->watch([self] { self->advance(); }, [self] { self->client_left(); });
  for (size_t i = 0; i < prepared_.prompts.size() * static_cast<size_t>(r.best_of); ++i) {
    choices_.push_back({.stream = engine::TextStream(*services_.backend->tokenizer, r.stops, true, r.min_tokens),
                        .text = r.echo ? prepared_.echoes[prompt_of(i)] : std::string(),
                        .last_token = arrival_});
  }
  for (size_t i = 0; i < prepared_.prompts.size(); ++i) {
    const Status status = submit(i);
    if (status.ok()) continue;
    ended_ = true;
    cancel_rest();
    return services_.reply(*exchange_, route(), error_reply(status));
  }
}

Status Generation::submit(size_t prompt) {
  const GenerationRequest& r = prepared_.request;
  const auto num_choices = static_cast<size_t>(r.best_of);
  const size_t first = prompt * num_choices;
  engine::Request request;
  request.prompt = prepared_.prompts[prompt];
  request.sampling = r.sampling;
  // Choices of one request differ although its seed is one.
  request.sampling.seed = r.has_seed ? r.sampling.seed + first : services_.new_seed();
  request.num_choices = r.best_of;
  request.priority = r.priority;
  request.client = prepared_.client;
  request.max_tokens = std::max(prepared_.max_tokens[prompt], 1);  // 0: the prompt alone, scored; the token is dropped
  request.min_tokens = r.min_tokens;
  request.ignore_eos = r.ignore_eos;
  request.stop_token_ids = r.stop_token_ids;
  request.logprobs = r.logprobs;
  request.prompt_logprobs = std::max(r.prompt_logprobs, r.echo ? r.logprobs : -1);
  auto sink = services_.inbox->make_sink(shared_from_this(), first, num_choices);
  auto id = services_.backend->engine->submit(std::move(request), std::move(sink));
  if (!id.ok()) return id.status();
  for (size_t c = 0; c < num_choices; ++c) {
    choices_[first + c].id = engine::RequestId(id->value() + c);
    choices_[first + c].in_engine = true;
    ++services_.choices_in_engine;
    services_.metrics.max_tokens.observe(static_cast<double>(prepared_.max_tokens[prompt]));
  }
  services_.metrics.prompt_tokens.observe(static_cast<double>(prepared_.prompts[prompt].size()));
  return ok_status();
}

// ---- From the engine ----

void Generation::on_delivery(size_t index, const Delivery& delivery) {
  Choice& choice = choices_[index];
  if (delivery.finished) leave_engine(choice);
  if (ended_ || !choice.finish_reason.empty()) return;  // surplus behind a stop string
  choice.num_cached_tokens = std::max(choice.num_cached_tokens, delivery.num_cached_tokens);
  take_prompt_logprobs(index, delivery);
  const bool nothing_asked = prepared_.max_tokens[prompt_of(index)] == 0;
  if (!nothing_asked) take_tokens(choice, delivery);
  if (!choice.finish_reason.empty() || !delivery.finished) return;
  if (*delivery.finished == engine::FinishReason::kError) {
    error_ = delivery.error.empty() ? "the engine failed" : std::string(delivery.error);
  }
  choice.stream.finish(choice.text);
  const bool scored = nothing_asked && *delivery.finished == engine::FinishReason::kStop;
  finish_choice(choice, scored ? "length" : choice.stream.stopped() ? "stop" : finish_word(*delivery.finished));
}

// An echoed prompt's tokens come before the answer's; its first has no log probability.
void Generation::take_prompt_logprobs(size_t index, const Delivery& delivery) {
  const GenerationRequest& r = prepared_.request;
  Choice& choice = choices_[index];
  const auto& all = delivery.prompt_logprobs;
  const std::vector<int32_t>& prompt = prepared_.prompts[prompt_of(index)];
  const bool first = choice.num_tokens == 0 && choice.prompt_logprobs.empty();
  if (!first || (all.empty() && prompt.size() > 1)) return;
  for (const bool echoed : {false, true}) {
    if (echoed ? !r.echo || r.logprobs < 0 : r.prompt_logprobs < 0) continue;
    auto& to = echoed ? choice.logprobs : choice.prompt_logprobs;
    to.push_back(unscored(prompt[0]));
    to.insert(to.end(), all.begin(), all.end());
    for (auto& t : to) t.num_top = std::min(t.num_top, echoed ? r.logprobs : r.prompt_logprobs);
  }
}

void Generation::take_tokens(Choice& choice, const Delivery& delivery) {
  int64_t count = 0;
  for (const int32_t token : delivery.tokens) {
    choice.stream.push({&token, 1}, choice.text);
    choice.sum_logprobs += delivery.token_logprobs[static_cast<size_t>(count)];
    if (prepared_.request.logprobs >= 0) choice.logprobs.push_back(delivery.logprobs[static_cast<size_t>(count)]);
    ++count;
    if (choice.stream.stopped()) break;
  }
  count_tokens(choice, count);
  if (!choice.stream.stopped()) return;
  if (choice.in_engine) services_.backend->engine->cancel(choice.id);
  leave_engine(choice);
  finish_choice(choice, "stop");
}

void Generation::count_tokens(Choice& choice, int64_t count) {
  if (count == 0) return;
  const auto now = steady_clock::now();
  if (first_token_ == steady_clock::time_point()) first_token_ = now;
  if (choice.num_tokens == 0) {
    services_.metrics.time_to_first_token.observe(seconds(now - arrival_));
    if (count > 1) services_.metrics.inter_token_latency.observe(0, count - 1);
  } else {
    services_.metrics.inter_token_latency.observe(seconds(now - choice.last_token) / static_cast<double>(count), count);
  }
  choice.last_token = now;
  choice.num_tokens += count;
}

void Generation::finish_choice(Choice& choice, std::string_view reason) {
  choice.finish_reason = reason;
  ++services_.metrics.finished[std::string(reason)];
  services_.metrics.generation_tokens.observe(static_cast<double>(choice.num_tokens));
  const auto now = steady_clock::now();
  services_.metrics.request_latency.observe(seconds(now - arrival_));
  if (choice.num_tokens > 1) {
    services_.metrics.time_per_output_token.observe(seconds(now - first_token_) /
                                                    static_cast<double>(choice.num_tokens - 1));
  }
}

// ---- To the client ----

void Generation::advance() {
  if (ended_) return;
  const auto self = shared_from_this();  // ending the exchange drops its hold on this
  if (!error_.empty()) return fail(500, error_);
  if (prepared_.request.stream) return advance_stream();
  if (!all_finished()) return;
  ended_ = true;
  std::vector<FinishedChoice> finished;
  for (Choice* choice : best_choices()) {
    finished.push_back({choice->text, choice->finish_reason, take_logprobs_json(*choice), {}});
    if (prepared_.request.prompt_logprobs < 0) continue;
    append_prompt_logprobs(finished.back().prompt_logprobs, *services_.backend->tokenizer, choice->prompt_logprobs);
  }
  note_usage();
  services_.reply(*exchange_, route(), {.body = writer_.whole(finished, usage())});
}

// The choices that are given: of each prompt n, the likeliest first if more were made.
std::vector<Generation::Choice*> Generation::best_choices() {
  const auto made = static_cast<size_t>(prepared_.request.best_of), given = static_cast<size_t>(prepared_.request.n);
  const auto mean = [](const Choice* c) {
    return c->sum_logprobs / static_cast<double>(std::max<int64_t>(c->num_tokens, 1));
  };
  std::vector<Choice*> best;
  for (size_t first = 0; first < choices_.size(); first += made) {
    std::vector<Choice*> all(made);
    for (size_t c = 0; c < made; ++c) all[c] = &choices_[first + c];
    if (made > given) {
      std::stable_sort(all.begin(), all.end(), [&](const Choice* a, const Choice* b) { return mean(a) > mean(b); });
    }
    best.insert(best.end(), all.begin(), all.begin() + static_cast<int64_t>(given));
  }
  return best;
}

void Generation::advance_stream() {
  if (stream_started_ && !exchange_->writable()) return;  // comes again when it is
  std::string events;
  for (size_t i = 0; i < choices_.size(); ++i) append_events(i, events);
  if (events.empty()) return;
  if (!stream_started_) {
    // Not before the first text: until then an error still gets its own HTTP status.
    stream_started_ = true;
    exchange_->start_stream({.content_type = "text/event-stream; charset=utf-8",
                             .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
  }
  const bool last = all_finished();
  if (last && prepared_.request.include_usage) writer_.usage_event(events, usage());
  if (last) events += AnswerWriter::kDone;
  exchange_->write(events);
  if (!last) return;
  ended_ = true;
  note_usage();
  ++services_.metrics.responses[{std::string(route()), 200}];
  exchange_->finish();
}

void Generation::append_events(size_t index, std::string& events) {
  Choice& choice = choices_[index];
  const bool finished = !choice.finish_reason.empty();
  if (choice.finish_sent || (choice.text.empty() && !finished)) return;
  const bool chat = prepared_.request.chat;
  if (chat && !choice.role_sent) writer_.role_event(events, index);
  choice.role_sent = true;
  if (!choice.text.empty() && (chat || !finished)) {
    writer_.text_event(events, index, choice.text, take_logprobs_json(choice));
  }
  if (finished) writer_.finish_event(events, index, choice.text, choice.finish_reason, take_logprobs_json(choice));
  choice.finish_sent = finished;
  choice.text.clear();
}

// Of the tokens since the last call; "null" if there are none.
std::string Generation::take_logprobs_json(Choice& choice) {
  if (choice.logprobs.empty()) return "null";
  std::string json;
  if (prepared_.request.chat) {
    append_chat_logprobs(json, *services_.backend->tokenizer, choice.logprobs);
  } else {
    append_completion_logprobs(json, *services_.backend->tokenizer, choice.logprobs, &choice.text_offset);
  }
  choice.logprobs.clear();
  return json;
}

void Generation::fail(int http_status, std::string_view message) {
  ended_ = true;
  note_usage();
  cancel_rest();
  if (!stream_started_) return services_.reply(*exchange_, route(), error_reply(http_status, message));
  ++services_.metrics.responses[{std::string(route()), http_status}];
  std::string event = "data: " + error_body(http_status, message) + "\n\n";
  event += AnswerWriter::kDone;
  exchange_->write(event);
  exchange_->finish();
}

void Generation::cancel_rest() {
  for (Choice& choice : choices_) {
    if (choice.in_engine) services_.backend->engine->cancel(choice.id);
    leave_engine(choice);
  }
}

void Generation::leave_engine(Choice& choice) {
  if (std::exchange(choice.in_engine, false)) --services_.choices_in_engine;
}

void Generation::client_left() {
  if (ended_) return;
  ended_ = true;
  ++services_.metrics.disconnects;
  note_usage();
  cancel_rest();
}

void Generation::note_usage() {
  const Usage sum = usage();
  exchange_->note("prompt_tokens", sum.prompt_tokens);
  exchange_->note("cached_tokens", sum.cached_tokens);
  exchange_->note("completion_tokens", sum.completion_tokens);
  if (sum.completion_tokens == 0) return;
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(first_token_ - arrival_);
  exchange_->note("first_token_us", micros.count());
}

bool Generation::all_finished() const {
  for (const Choice& choice : choices_) {
    if (choice.finish_reason.empty()) return false;
  }
  return true;
}

Usage Generation::usage() const {
  Usage sum;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (i % static_cast<size_t>(prepared_.request.best_of) == 0) {
      sum.prompt_tokens += static_cast<int64_t>(prepared_.prompts[prompt_of(i)].size());
      sum.cached_tokens += choices_[i].num_cached_tokens;
    }
    sum.completion_tokens += choices_[i].num_tokens;
  }
  return sum;
}

}  // namespace bz::server
