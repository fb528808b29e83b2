#include "seeds.h"

#include <span>
#include <string_view>

#include "formats/byte_alphabet.h"
#include "formats/gguf_writer.h"
#include "models/tiny_llama.h"

namespace bz::fuzz {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

models::TinyLlama smallest_llama() {
  models::TinyLlama tiny;
  tiny.vocab_size = 4;
  tiny.hidden_size = 4;
  tiny.num_layers = 1;
  tiny.num_heads = 2;
  tiny.num_kv_heads = 1;
  tiny.head_dim = 2;
  tiny.intermediate_size = 4;
  return tiny;
}

// Every kind of metadata value and of tensor.
formats::GgufWriter one_of_each() {
  formats::GgufWriter w;
  w.add("general.architecture", "other").add("b", true).add("u", 1u).add("i", -1).add("l", uint64_t{1} << 40);
  w.add("f", 0.5f).add("strings", std::vector<std::string>{"x", ""}).add("ints", std::vector<int32_t>{1});
  w.add("floats", std::vector<float>{1.0f});
  // An array of one array of two bytes.
  constexpr std::string_view kNested("\x09\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x07\x08", 26);
  w.add_raw("nested", 9, std::as_bytes(std::span(kNested)));
  for (const DType type : {DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                           DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    const DTypeInfo info = dtype_info(type);
    w.add_tensor(info.name, {info.block_elems}, type, std::vector<std::byte>(static_cast<size_t>(info.block_bytes)));
  }
  return w.add_tensor_info("unknown", {1}, 9999, 0);
}

formats::GgufWriter small_tokenizer() {
  std::vector<std::string> tokens(formats::byte_alphabet().begin(), formats::byte_alphabet().end());
  std::vector<int32_t> types(tokens.size(), 1);
  for (const char* merged : {"ab", "abc"}) {
    tokens.emplace_back(merged);
    types.push_back(1);
  }
  tokens.emplace_back("<|end|>");
  types.push_back(3);
  formats::GgufWriter w;
  w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "smollm");
  w.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", types);
  w.add("tokenizer.ggml.merges", std::vector<std::string>{"a b", "ab c"});
  w.add("tokenizer.ggml.eos_token_id", 258u).add("tokenizer.ggml.add_bos_token", false);
  return w;
}

}  // namespace

std::vector<Seed> gguf_seeds() {
  formats::GgufWriter scaled = smallest_llama().writer();
  scaled.add("llama.rope.scaling.type", "linear").add("llama.rope.scaling.factor", 2.0f);
  scaled.add_tensor("rope_freqs.weight", {1}, std::vector<float>{1.0f});
  formats::GgufWriter aligned;
  aligned.set_alignment(64).add_tensor("t", {2, 1, 1, 2}, std::vector<float>(4));
  return {{"llama", smallest_llama().writer().bytes()},
          {"llama_scaled", scaled.bytes()},
          {"one_of_each", one_of_each().bytes()},
          {"aligned", aligned.bytes()},
          {"empty", formats::GgufWriter().bytes()}};
}

std::vector<Seed> tokenizer_seeds() {
  std::vector<std::byte> file = {std::byte{0}};
  const std::vector<std::byte> gguf = small_tokenizer().bytes();
  file.insert(file.end(), gguf.begin(), gguf.end());
  return {{"file", file},
          {"text_gpt2", bytes_of("\x01It's the abc <|x|><|xy|> 123  \n\n \xc3\xa9\xe6\x97\xa5 \xff\xfe <u>")},
          {"text_smollm", bytes_of("\x04 a  1 22 x\t\n the the")},
          {"text_llama", bytes_of("\x07I'LL 1234567 (x)\n\n  y")},
          {"text_qwen", bytes_of("\x0a"
                                 "e\xcc\x81 \xea\xb0\x80 12\r\n z")},
          {"lines", bytes_of("\x02"
                             "a b\nab c\n<|end|>\nx y\nxy abc\n\xc4\xa0 a\n")}};
}

std::vector<Seed> chat_template_seeds() {
  const std::vector<std::string_view> sources = {
      "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{{ m.content|trim if m.content is string }}\n{% endfor %}"
      "{% if add_generation_prompt %}{{ bos_token }}{% endif %}",
      "{%- set ns = namespace(n=0) -%}{%- for m in messages if m.role != 'tool' -%}{%- set ns.n = ns.n + loop.index -%}"
      "{{ m | tojson(indent=1) }}{%- else -%}none{%- endfor -%}{{ ns.n }}",
      "{%- macro f(x, d=1) -%}{{ x | upper ~ d }}{%- endmacro -%}{{ f('a') }}{{ f(x='b', d=[1, {'k': none}]) }}",
      "{{ 'a,b'.split(',')[::-1] | join('-') | replace('a', 'é') | indent(2) }}{{ [3, 1] | sort | map('string') | list "
      "}}",
      "{{ -7 // 2 ** 1 % 3 + 1.5 * 2 }}{{ 1 < 2 <= 2 and not 'x' in 'y' or none is defined }}{{ '{}'.format(1) }}",
      "{% set x %}a{% endset %}{% raw %}{{ x }}{% endraw %}{# note #}{% filter title %}{{ x }}{% endfilter %}"
      "{% with a = 1 %}{% if a %}{{ range(3) | list }}{% endif %}{% endwith %}",
      "{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% if loop.last %}{% break %}{% endif %}{% endfor %}"
      "{{ raise_exception('no') if messages | length > 99 }}{{ strftime_now('%Y') }}{{ messages[2].tool_calls[0] }}",
  };
  std::vector<Seed> seeds;
  for (size_t i = 0; i < sources.size(); ++i) seeds.emplace_back("seed_" + std::to_string(i), bytes_of(sources[i]));
  return seeds;
}

std::vector<Seed> http_seeds() {
  constexpr std::string_view kNul("\0", 1);
  const auto completion = [&](std::string_view body) { return bytes_of(std::string(kNul) + std::string(body)); };
  return {
      {"completion", completion(R"({"model":"m","prompt":"Hi","max_tokens":4,"temperature":0.5,"top_p":0.9,"top_k":-1,)"
                                R"("min_p":0.1,"seed":-3,"stop":["a","\u00e9"],"stream":true,)"
                                R"("stream_options":{"include_usage":true},"ignore_eos":true,"n":1,"echo":false})")},
      {"prompts", completion(R"({"prompt":["a",[1,2,999]],"stop":"x","stop_token_ids":[5],"logprobs":null})")},
      {"tokens", completion(R"({"prompt":[1,2,3],"logit_bias":null,"response_format":{"type":"text"}})")},
      {"refused", completion(R"({"prompt":[[[1]]],"response_format":{"json_object":false},"max_tokens":1e99})")},
      {"surrogate", completion(R"({"prompt":"\ud83d\ude00 \ud800"})")},
      {"chat", bytes_of("\x01"
                        R"({"messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"text",)"
                        R"("text":"b"}]},{"role":"assistant","content":null}],"max_completion_tokens":3,"tools":null,)"
                        R"("tool_choice":"none","add_generation_prompt":false})")},
      {"tokenize", bytes_of("\x02{\"prompt\":\"x\",\"add_special_tokens\":false}")},
      {"detokenize", bytes_of("\x03{\"tokens\":[1,2]}")},
      {"get", bytes_of("\x04GET /health?x=1 HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\nGET / HTTP/1.0\r\n\r\n")},
      {"post", bytes_of("\x09POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")},
      {"chunked",
       bytes_of("\x0ePOST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nT: x\r\n\r\n")},
      {"expect", bytes_of("\x13POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx\r\n")},
  };
}

}  // namespace bz::fuzz
