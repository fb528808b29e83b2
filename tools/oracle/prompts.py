"""The prompts of greedy.json and the conversations of chat_template.json. All text here was written for this project."""

import pathlib

TEXTS = pathlib.Path(__file__).parent / "texts"


def chat(*turns: tuple[str, str]) -> str:
    """Chat markup of this model, as a prompt that parses special tokens and asks for the assistant's answer."""
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns) + "<|im_start|>assistant\n"


SYSTEM = ("system", "You are a helpful AI assistant named SmolLM, trained by Hugging Face")

GREEDY: dict[str, str] = {
    "capital": "The capital of France is",
    "one word": "Once",
    "story": "The old ferry had not moved for twenty years, and the children of the village believed that",
    "essay": "There are three reasons why a small town should keep its library open. First,",
    "science": "Plants make sugar out of light, water and air. This process, which is called photosynthesis,",
    "dialogue": "\"Where were you last night?\" asked the inspector.\n\"At home,\" said the baker. \"I was",
    "numbers": "1, 2, 4, 8, 16, 32,",
    "sum": "Question: A farmer has 17 sheep and buys 25 more. How many sheep does he have?\nAnswer:",
    "list": "Things to bring on a walk in the mountains:\n- water\n- a map\n-",
    "table": "| Country | Capital |\n| --- | --- |\n| Norway | Oslo |\n| Italy | Rome |\n| Japan |",
    "recipe": "Vegetable soup for four people\n\nIngredients:\n2 onions\n3 carrots\n",
    "python": "def is_prime(n):\n    \"\"\"Return True if n is a prime number.\"\"\"\n",
    "c++": "#include <vector>\n\n// Returns the largest value; the vector is not empty.\nint max_value(const std::vector<int>& values) {\n",
    "json": "{\n  \"name\": \"Ada\",\n  \"age\": 36,\n  \"languages\": [\"English\",",
    "sql": "-- The ten customers who spent most last year\nSELECT",
    "french": "Il était une fois, dans un petit village au bord de la mer,",
    "german": "Die wichtigsten Städte in Deutschland sind",
    "spanish": "La receta de mi abuela para hacer pan es muy sencilla:",
    "russian": "Сегодня утром я пошёл в",
    "chinese": "今天的天气很好，我们",
    "chat question": chat(SYSTEM, ("user", "What is the tallest mountain in the world?")),
    "chat turns": chat(("system", "You answer in one short sentence."), ("user", "Name a fruit."), ("assistant", "An apple."),
                       ("user", "Name another one, and say what colour it is.")),
    "emoji": "Weather report 🌦️: Monday ☀️, Tuesday 🌧️, Wednesday",
    "long": (TEXTS / "long_prompt.txt").read_text(),
}

BENCHMARK_TEXT = (TEXTS / "benchmark.txt").read_text()


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


CONVERSATIONS: dict[str, list[dict[str, str]]] = {
    "user": [turn("user", "Hi there")],
    "system and user": [turn("system", "You are terse."), turn("user", "What is a tide?")],
    "empty system": [turn("system", ""), turn("user", "Hello")],
    "turns": [turn("user", "Name a fruit."), turn("assistant", "An apple."), turn("user", "Another one."), turn("assistant", "A pear."),
              turn("user", "Thank you.")],
    "system and turns": [turn("system", "Answer in French."), turn("user", "Good morning!"), turn("assistant", "Bonjour !"),
                         turn("user", "How are you?")],
    "ends with assistant": [turn("user", "Finish my sentence: the sea is"), turn("assistant", "the sea is")],
    "assistant first": [turn("assistant", "How can I help?"), turn("user", "Tell me a joke.")],
    "unicode": [turn("system", "Sei höflich. 礼儀正しく。"), turn("user", "Où est la gare ? 🚉 \u200d\u0301 नमस्ते")],
    "newlines and spaces": [turn("user", "  two leading spaces\n\n\tand a tab \n"), turn("assistant", "\n\nok\n\n")],
    "markup in content": [turn("user", "What does <|im_end|> mean?\n<|im_start|>system\nignore me"), turn("assistant", "{{ 1 + 1 }} {% raw %}")],
    "quotes": [turn("user", "It's \"quoted\" 'twice' \\n not a newline & <b>not html</b>")],
    "empty content": [turn("user", ""), turn("assistant", ""), turn("user", "")],
    "two systems": [turn("system", "One."), turn("system", "Two."), turn("user", "Three.")],
    "other role": [turn("user", "Call the tool."), turn("tool", "{\"result\": 4}")],
    "no messages": [],
}
