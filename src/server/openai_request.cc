#include "server/openai_request.h"

#include <array>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "server/fields.h"
#include "server/openai_prompt.h"

namespace bz::server {
namespace {

// Fields of OpenAI, vLLM, SGLang and llama.cpp that change an answer and that both endpoints cannot do yet, each with
// the value that changes nothing. Ignored, they would give an answer that is not what was asked for.
void refuse_unsupported(Fields& in) {
  in.only("use_beam_search", false);
  in.only("length_penalty", 1);
  in.only("no_repeat_ngram_size", 0);
  in.only("repeat_penalty", 1);  // llama.cpp's looks at the last tokens only
  in.only("typical_p", 1);
  in.only("mirostat", 0);
  in.only("dynatemp_range", 0);
  in.only("xtc_probability", 0);
  in.only("dry_multiplier", 0);
  in.only("n_probs", 0);
  in.only("include_stop_str_in_output", false);
  in.only("skip_special_tokens", true);
  in.only("spaces_between_special_tokens", true);
  in.only("return_token_ids", false);
  in.only("return_tokens_as_token_ids", false);
  in.only("response_format", {{"type", "text"}});
  for (const char* name : {"bad_words",
                           "allowed_token_ids",
                           "logits_processors",
                           "logprob_token_ids",
                           "truncate_prompt_tokens",
                           "thinking_token_budget",
                           "n_predict",
                           "samplers",
                           "lora",
                           "lora_path",
                           "structured_outputs",
                           "guided_json",
                           "guided_regex",
                           "guided_choice",
                           "guided_grammar",
                           "json_schema",
                           "regex",
                           "ebnf",
                           "structural_tag",
                           "kv_transfer_params",
                           "vllm_xargs"}) {
    in.only(name, nullptr);
  }
  in.only("grammar", "");
}

void read_choices(Fields& in, GenerationRequest& out) {
  out.n = static_cast<int32_t>(in.integer("n", 1, engine::kMaxChoices).value_or(1));
  const auto best_of = in.integer("best_of", 1, engine::kMaxChoices);
  out.best_of = static_cast<int32_t>(best_of.value_or(out.n));
  if (out.best_of < out.n) in.fail("best_of", fmt::format("must be at least n, which is {}", out.n));
  if (out.chat && out.best_of != out.n) in.fail("best_of", "is not part of chats: leave it out");
  if (out.stream && out.best_of != out.n) in.fail("best_of", "above n cannot be streamed: leave out \"stream\"");
  out.priority = static_cast<int32_t>(in.integer("priority", -engine::kMaxPriority, engine::kMaxPriority).value_or(0));
  out.user = in.string("user", "");
  if (out.user.size() > kMaxUserBytes) in.fail("user", fmt::format("may have at most {} bytes", kMaxUserBytes));
}

void read_sampling(Fields& in, GenerationRequest& out) {
  engine::SamplingParams& s = out.sampling;
  s.temperature = static_cast<float>(in.number("temperature", 0, 2).value_or(1));
  const double top_p = in.number("top_p", 0, 1).value_or(1);
  s.top_p = static_cast<float>(top_p);
  // A positive value too small for a float would become the excluded zero.
  if (!(s.top_p > 0)) in.fail("top_p", "must be above 0 and at most 1");
  const int64_t top_k = in.integer("top_k", -1, INT32_MAX).value_or(0);
  s.top_k = top_k < 0 ? 0 : static_cast<int32_t>(top_k);
  s.min_p = static_cast<float>(in.number("min_p", 0, 1).value_or(0));
  if (!(s.min_p < 1)) in.fail("min_p", "must be at least 0 and below 1");
  const auto seed = in.bits("seed");
  out.has_seed = seed.has_value();
  s.seed = seed.value_or(0);
}

// {"token id": bias}: the keys are strings, as JSON's are.
void read_logit_bias(Fields& in, const RequestLimits& limits, GenerationRequest& out) {
  const Json* biases = in.get("logit_bias");
  if (!biases) return;
  if (!biases->is_object()) return in.fail("logit_bias", "must be an object, not " + shown(*biases));
  if (biases->size() > engine::kMaxLogitBias) {
    return in.fail("logit_bias", fmt::format("may hold at most {} ids, not {}", engine::kMaxLogitBias, biases->size()));
  }
  for (const auto& [key, value] : biases->items()) {
    int32_t token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0 || token >= limits.vocab_size) {
      return in.fail("logit_bias", fmt::format("may only name token ids from 0 to {}, not {}", limits.vocab_size - 1,
                                               shown(Json(key))));
    }
    const double bias = value.is_number() ? value.get<double>() : NAN;
    if (!(std::fabs(bias) <= engine::kMaxLogitBiasValue)) {
      return in.fail("logit_bias",
                     fmt::format("must give token {} a number from -100 to 100, not {}", token, shown(value)));
    }
    out.sampling.logit_bias.push_back({token, static_cast<float>(bias)});
  }
}

void read_penalties(Fields& in, GenerationRequest& out) {
  engine::SamplingParams& s = out.sampling;
  s.presence_penalty = static_cast<float>(in.number("presence_penalty", -2, 2).value_or(0));
  s.frequency_penalty = static_cast<float>(in.number("frequency_penalty", -2, 2).value_or(0));
  s.repetition_penalty = static_cast<float>(in.number("repetition_penalty", 0, 1e6).value_or(1));
  if (!(s.repetition_penalty > 0)) in.fail("repetition_penalty", "must be above 0");
}

void add_stop(Fields& in, const Json& value, GenerationRequest& out) {
  if (!value.is_string()) return in.fail("stop", "must be a string or an array of strings, not " + shown(value));
  const auto& text = value.get_ref<const std::string&>();
  if (text.empty()) return in.fail("stop", "may not hold an empty string");
  if (text.size() > kMaxStopBytes) {
    return in.fail("stop", fmt::format("may hold strings of at most {} bytes, not {}", kMaxStopBytes, text.size()));
  }
  out.stops.push_back(text);
}

void read_stops(Fields& in, const RequestLimits& limits, GenerationRequest& out) {
  out.ignore_eos = in.boolean("ignore_eos", false);
  out.stop_token_ids = in.token_ids("stop_token_ids", limits.vocab_size, engine::kMaxStopTokenIds);
  const Json* stop = in.get("stop");
  if (!stop) return;
  if (!stop->is_array()) return add_stop(in, *stop, out);
  if (stop->size() > kMaxStops) {
    return in.fail("stop", fmt::format("may hold at most {} strings, not {}", kMaxStops, stop->size()));
  }
  for (const Json& value : *stop) add_stop(in, value, out);
}

void read_max_tokens(Fields& in, const char* name, const RequestLimits& limits, GenerationRequest& out) {
  const auto value = in.integer(name, out.echo ? 0 : 1, limits.max_model_len);  // an echo alone scores the prompt
  if (!value) return;
  out.max_tokens = static_cast<int32_t>(*value);
  out.max_tokens_field = name;
}

Status read_streaming(Fields& in, GenerationRequest& out) {
  out.stream = in.boolean("stream", false);
  const Json* options = in.get("stream_options");
  if (!options) return in.status();
  if (!options->is_object()) in.fail("stream_options", "must be an object, not " + shown(*options));
  if (!out.stream) in.fail("stream_options", "goes with \"stream\": true only");
  BZ_TRY(in.status());
  Fields inner(*options, "stream_options.");
  out.include_usage = inner.boolean("include_usage", false);
  inner.only("continuous_usage_stats", false);
  return inner.status();
}

Status read_common(Fields& in, const RequestLimits& limits, GenerationRequest& out) {
  out.model = in.string("model", "");
  read_sampling(in, out);
  read_penalties(in, out);
  read_logit_bias(in, limits, out);
  out.min_tokens = static_cast<int32_t>(in.integer("min_tokens", 0, limits.max_model_len).value_or(0));
  out.prompt_logprobs = static_cast<int32_t>(in.integer("prompt_logprobs", 0, engine::kMaxTopLogprobs).value_or(-1));
  read_stops(in, limits, out);
  BZ_TRY(read_streaming(in, out));
  if (out.stream && out.prompt_logprobs >= 0) in.fail("prompt_logprobs", "cannot be streamed: leave out \"stream\"");
  read_choices(in, out);
  refuse_unsupported(in);
  return in.status();
}

Result<Json> parse_object(std::string_view body) {
  BZ_ASSIGN(Json json, parse_json(body));
  if (!json.is_object()) return invalid_argument("the request body must be a JSON object, not {}", shown(json));
  return json;
}

}  // namespace

Result<GenerationRequest> parse_completion_request(std::string_view body, const RequestLimits& limits) {
  BZ_ASSIGN(const Json json, parse_object(body));
  Fields in(json);
  GenerationRequest out;
  BZ_TRY(read_common(in, limits, out));
  out.echo = in.boolean("echo", false);
  out.logprobs = static_cast<int32_t>(in.integer("logprobs", 0, engine::kMaxTopLogprobs).value_or(-1));
  read_max_tokens(in, "max_tokens", limits, out);
  read_max_tokens(in, "max_completion_tokens", limits, out);  // the name that chats have for it
  if (in.get("top_logprobs")) in.fail("top_logprobs", "is a field of chats: here \"logprobs\" is the number");
  out.add_special_tokens = in.boolean("add_special_tokens", true);
  in.only("suffix", "");
  in.only("prompt_embeds", nullptr);
  BZ_TRY(in.status());
  BZ_ASSIGN(out.prompts, read_prompts(in.get("prompt"), limits));
  if (out.prompts.size() * static_cast<size_t>(out.best_of) > kMaxAnswers) {
    return invalid_field("n", "{} prompts with {} choices each are too many answers: at most {}", out.prompts.size(),
                         out.best_of, kMaxAnswers);
  }
  return out;
}

Result<GenerationRequest> parse_chat_request(std::string_view body, const RequestLimits& limits) {
  BZ_ASSIGN(const Json json, parse_object(body));
  Fields in(json);
  GenerationRequest out;
  out.chat = true;
  BZ_TRY(read_common(in, limits, out));
  read_max_tokens(in, "max_tokens", limits, out);
  read_max_tokens(in, "max_completion_tokens", limits, out);  // OpenAI's newer name wins
  const bool logprobs = in.boolean("logprobs", false);
  const auto top = in.integer("top_logprobs", 0, engine::kMaxTopLogprobs);
  if (top && *top > 0 && !logprobs) in.fail("top_logprobs", "goes with \"logprobs\": true only");
  if (logprobs) out.logprobs = static_cast<int32_t>(top.value_or(0));
  out.add_generation_prompt = in.boolean("add_generation_prompt", true);
  in.only("echo", false);
  in.only("continue_final_message", false);
  in.only("tools", nullptr);
  in.only("functions", nullptr);
  if (const Json* choice = in.get("tool_choice"); choice && *choice != "none" && *choice != "auto") {
    in.fail("tool_choice", "is not supported yet: leave it out");
  }
  in.only("function_call", "none");
  in.only("modalities", Json::array({"text"}));
  for (const char* name : {"audio", "prediction", "web_search_options", "chat_template", "chat_template_kwargs",
                           "documents", "mm_processor_kwargs"}) {
    in.only(name, nullptr);
  }
  BZ_TRY(in.status());
  BZ_ASSIGN(out.messages, read_messages(in.get("messages")));
  return out;
}

Result<TokenizeRequest> parse_tokenize_request(std::string_view body) {
  BZ_ASSIGN(const Json json, parse_object(body));
  Fields in(json);
  TokenizeRequest out;
  out.model = in.string("model", "");
  out.add_special_tokens = in.boolean("add_special_tokens", true);
  out.text = in.string("prompt", "");
  BZ_TRY(in.status());
  if (!in.get("prompt")) return invalid_field("prompt", "prompt is missing");
  return out;
}

Result<DetokenizeRequest> parse_detokenize_request(std::string_view body, const RequestLimits& limits) {
  BZ_ASSIGN(const Json json, parse_object(body));
  Fields in(json);
  DetokenizeRequest out;
  out.model = in.string("model", "");
  out.tokens = in.token_ids("tokens", limits.vocab_size, SIZE_MAX);
  BZ_TRY(in.status());
  if (!in.get("tokens")) return invalid_field("tokens", "tokens is missing");
  return out;
}

}  // namespace bz::server
