#include "server/web_page.h"

namespace bz::server {
namespace {

constexpr std::string_view kPage = R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Blockzero</title>
<style>
  :root { color-scheme: light dark; --line: #8884; --me: #3b82f622; }
  * { box-sizing: border-box; }
  body { margin: 0; font: 16px/1.5 system-ui, sans-serif; height: 100dvh; display: flex; flex-direction: column; }
  header, form { padding: .6rem max(1rem, calc(50% - 24rem)); display: flex; gap: .6rem; align-items: center; }
  header { border-bottom: 1px solid var(--line); flex-wrap: wrap; }
  header b { margin-right: auto; }
  header span { opacity: .7; font-size: .85rem; }
  main { flex: 1; overflow-y: auto; padding: 1rem max(1rem, calc(50% - 24rem)); }
  .turn { white-space: pre-wrap; overflow-wrap: anywhere; padding: .5rem .8rem; margin: 0 0 .8rem; border-radius: .6rem; }
  .user { background: var(--me); }
  .error { color: #dc2626; }
  form { border-top: 1px solid var(--line); align-items: end; }
  textarea, input, button { font: inherit; padding: .45rem .6rem; border: 1px solid var(--line); border-radius: .5rem; background: transparent; color: inherit; }
  textarea { flex: 1; resize: none; min-height: 2.6rem; max-height: 40vh; }
  input { width: 9rem; }
</style>
<header>
  <b>Blockzero</b>
  <span id="state">...</span>
  <input id="key" type="password" placeholder="API key, if set" autocomplete="off" aria-label="API key">
  <button id="clear" type="button">New chat</button>
</header>
<main id="log" aria-live="polite"></main>
<form id="form">
  <textarea id="text" rows="1" placeholder="Ask something (Enter sends, Shift+Enter breaks the line)" autofocus aria-label="Message"></textarea>
  <button id="send">Send</button>
</form>
<script>
const $ = id => document.getElementById(id);
let turns = [], running = null;

function headers() {
  const h = {"Content-Type": "application/json"};
  if ($("key").value) h.Authorization = "Bearer " + $("key").value;
  return h;
}

function show(kind, text) {
  const turn = document.createElement("div");
  turn.className = "turn " + kind;
  turn.textContent = text;
  $("log").append(turn);
  turn.scrollIntoView({block: "end"});
  return turn;
}

// Calls `each` with every event of a text/event-stream body.
async function events(response, each) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part.startsWith("data: ") && part !== "data: [DONE]") each(JSON.parse(part.slice(6)));
    }
  }
}

async function ask(text) {
  turns.push({role: "user", content: text});
  show("user", text);
  const box = show("assistant", "");
  running = new AbortController();
  $("send").textContent = "Stop";
  const began = performance.now();
  let answer = "", usage = null;
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST", headers: headers(), signal: running.signal,
      body: JSON.stringify({messages: turns, stream: true, stream_options: {include_usage: true}}),
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    await events(response, event => {
      if (event.error) throw new Error(event.error.message);
      usage = event.usage || usage;
      for (const choice of event.choices) answer += choice.delta.content || "";
      box.textContent = answer;
      $("log").scrollTop = $("log").scrollHeight;
    });
  } catch (error) {
    if (error.name !== "AbortError") show("error", error.message);
  }
  if (answer) turns.push({role: "assistant", content: answer}); else turns.pop();
  const seconds = (performance.now() - began) / 1000;
  if (usage) $("state").textContent = `${usage.completion_tokens} tokens, ${(usage.completion_tokens / seconds).toFixed(1)} a second`;
  $("send").textContent = "Send";
  running = null;
}

$("form").addEventListener("submit", event => {
  event.preventDefault();
  if (running) return running.abort();
  const text = $("text").value.trim();
  if (!text) return;
  $("text").value = "";
  ask(text);
});
$("text").addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("form").requestSubmit();
  }
});
$("clear").addEventListener("click", () => {
  if (running) running.abort();
  turns = [];
  $("log").replaceChildren();
});

fetch("/health").then(r => r.json()).then(health => {
  $("state").textContent = `${health.status}; null block ${health.null_block_clean === false ? "DIRTY" : "clean"}`;
}).catch(() => { $("state").textContent = "not reachable"; });
</script>
</html>
)html";

}  // namespace

std::string_view web_page() { return kPage; }

}  // namespace bz::server
