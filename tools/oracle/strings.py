"""The strings of tests/golden/smollm2/tokenize.json, by category.

Only characters of Unicode 13 and older appear, so that the answer does not depend on whose Unicode tables are newest.
"""

PROSE = """\
The capital of France is
Hello, world!
 leading space
trailing space 
The lamp in the harbour office had burned all night.
A sentence. Another one! A third? Yes; and a fourth: done.
ALL CAPITALS AND Mixed Case And camelCaseWords andPascalCase
supercalifragilistic antidisestablishmentarianism
"Quoted," she said, 'and quoted again.'
“Curly quotes” and ‘single ones’ — with dashes – and ellipses…
hyphen-ated, under_scored, dotted.name, slash/ed, back\\slash
(parentheses) [brackets] {braces} <angles>
e.g. i.e. etc. a.m. p.m. Dr. Mrs. U.N.
One, two,three ,four , five
?!?!?!
...... .... ... .. .
--- ---- ----- =====
**bold** _italic_ `code` ~~gone~~
# Heading
- item one
1. first
| a | b |
https://example.org/path?query=value&other=1#part
someone@example.org
@handle #topic $price 50% off & more * ^ + = ~ ` |
C++ C# F# .NET Node.js
naïve café résumé coöperate façade
Ångström, Žižek, Łódź, İstanbul, ığdır
ﬁne ﬂow oﬃce (ligatures)
ＦＵＬＬ ｗｉｄｔｈ １２３""".split("\n")

CONTRACTIONS = """\
I'm
I'm you're he's we've they'd I'll don't can't won't it's
I'M YOU'RE HE'S WE'VE THEY'D I'LL DON'T
I’m you’re he’s we’ve they’d I’ll don’t
'tis 'twas 'em 'll 're 've 's 't 'm 'd
's't're've'm'll'd
x's y't z're a've b'm c'll d'd
rock'n'roll o'clock y'all'd've
'sab 'tab 'reab 'veab 'mab 'llab 'dab
 's 't  're
dogs' and cats' toys
''s '''t ''''re
5's 1990's '90s""".split("\n")

DIGITS = """\
0
7
42
123
1234567890
3.14159
-17 +4 1e-5 2E10 6.02e23
1,000,000.00
0x1F 0b1011 0o17
2024-01-31T23:59:59Z
192.168.0.1:8080
v1.2.3-rc4
a1b2c3
abc123def456
 1  2   3    4
x 1
x  1
x   1
1 x
1  x
1   2
$5 £6 €7 ¥8
1st 2nd 3rd 4th
½ ¼ ¾ ⅓
x² + y³ = z⁴
H₂O CO₂
① ② ⑳
Ⅳ Ⅻ ⅷ
٠١٢٣٤٥٦٧٨٩
०१२३४५६७८९
๐๑๒๓๔๕๖๗๘๙
〇一二三四五六七八九十百千
１２３４５
 ½
  ½
 ٣
  ٣
page 12 of 345""".split("\n")

WHITESPACE = [
    " ", "  ", "   ", "    ", "        ", " " * 16, " " * 17, " " * 33, " " * 100,
    "\t", "\t\t", "\t\t\t\t", "\n", "\n\n", "\n\n\n", "\n" * 10, "\r", "\r\n", "\r\n\r\n", "\n\r", "\v", "\f",
    " \n", "\n ", " \n ", "  \n  ", "\t\n", "\n\t", " \t ", "\t \t", "\n \n \n",
    "a b", "a  b", "a   b", "a    b", "a\tb", "a\t\tb", "a \tb", "a\t b", "a\nb", "a\n\nb", "a\n\n\nb", "a \nb", "a\n b", "a  \n  b",
    "a\r\nb", "a\r\n\r\nb", "a\vb", "a\fb",
    "a ", "a  ", "a   ", "a\n", "a\n\n", "a\t", "a \n", "a\n ", " a", "  a", "   a", "\ta", "\t\ta", "\na", "\n\na", "\n a", "\n  a",
    "  .", " .", ". ", ".  .", ".\n.", ".\n\n.", "!\t!", "  !  ?",
    "a\u00a0b", "a\u00a0\u00a0b", "\u00a0a", "a\u2003b", "a \u2003 b", "a\u3000b", "\u3000\u3000a", "a\u2028b", "a\u2029b", "a\u0085b",
    "a\u1680b", "a\u2000\u2001\u2002b", "a\u202fb", "a\u205fb", "a\u200ab",
    "a\u180eb", "a \u180e b", "a\u200bb", "a \u200b b", "a\ufeffb", "\ufeffa", "a\u2060b", "a\u200cb\u200dc",
    "    def f():\n        return 1\n",
    "line one\nline two\n\n\nline five   \n   indented\n",
    "col1\tcol2\tcol3\n1\t2\t3\n",
]

CODE = [
    "int main(void) { return 0; }",
    "#include <cstdio>\n\nint main() {\n  std::printf(\"%d\\n\", 42);\n}\n",
    "template <typename T>\nconstexpr T square(T x) noexcept { return x * x; }",
    "def mean(values):\n    \"\"\"The arithmetic mean.\"\"\"\n    return sum(values) / len(values)\n",
    "for i in range(0, 10, 2):\n\tprint(f\"{i:>4}\")",
    "const add = (a, b) => a + b;\nconsole.log(add(1, 2));",
    "fn main() {\n    let v: Vec<u8> = vec![0u8; 16];\n    println!(\"{:?}\", v);\n}",
    "SELECT name, COUNT(*) FROM boats WHERE length_m >= 9.5 GROUP BY name HAVING COUNT(*) > 1;",
    "<div class=\"row\"><a href='#top'>Up &amp; away</a></div>",
    "{\"key\": [1, 2.5, null, true], \"nested\": {\"a\": \"b\\n\"}}",
    "key: value\nlist:\n  - one\n  - two\n",
    "#!/bin/sh\nset -eu\nfor f in *.txt; do wc -l \"$f\"; done\n",
    "if (x != y && !(a || b)) { x ^= ~y; z <<= 2; }",
    "std::unordered_map<std::string, std::vector<int>> m{{\"a\", {1}}};",
    "a->b.c::d[e](f)...;",
    "/* comment */ // another\n",
    "x = y ? z : w; // ??!",
    "0xDEADBEEFu 1'000'000 1.5e-3f 0b1010",
    "\\frac{a}{b} + \\sum_{i=0}^{n} x_i^2 \\leq \\infty",
    "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-old\n+new\n",
    "var_name VarName VAR_NAME varName2 _private __dunder__",
    "printf 'a\\tb\\n' | awk -F'\\t' '{print $2}' >/dev/null 2>&1",
]

LANGUAGES = """\
Guten Morgen, wie geht es Ihnen? Die Straße ist heute naß.
¿Dónde está la biblioteca? ¡Qué día tan bonito!
Où est la gare ? L'été, c'est déjà fini.
Onde fica a padaria? Não sei, só amanhã.
Dove si trova la stazione? È laggiù, perché no?
Waar is het station? 's Ochtends vroeg.
Gdzie jest dworzec? Zażółć gęślą jaźń.
Příliš žluťoučký kůň úpěl ďábelské ódy.
Hol van a pályaudvar? Árvíztűrő tükörfúrógép.
Gara este acolo, lângă piață.
İyi günler, nasılsınız? Şişli'ye gidiyorum.
Góðan daginn, þetta er ágætt æði.
Доброе утро! Где находится вокзал?
Добрий день, як справи? Їжак і ґанок.
Добро утро, къде е гарата?
Καλημέρα, πού είναι ο σταθμός;
Ἐν ἀρχῇ ἦν ὁ λόγος
בוקר טוב, איפה התחנה?
שָׁלוֹם עֲלֵיכֶם
صباح الخير، أين المحطة؟
السَّلَامُ عَلَيْكُمْ
صبح بخیر، ایستگاه کجاست؟
می‌خواهم
آپ کیسے ہیں؟
नमस्ते, आप कैसे हैं?
क्षत्रिय ज्ञान
সুপ্রভাত, স্টেশন কোথায়?
காலை வணக்கம்
శుభోదయం
ಶುಭೋದಯ
സുപ്രഭാതം
ශුභ උදෑසනක්
สวัสดีครับ สถานีรถไฟอยู่ที่ไหน
ສະບາຍດີ
မင်္ဂလာပါ
សួស្តី
དེབ་ལྷག
გამარჯობა, სად არის სადგური?
Բարև ձեզ
ሰላም ነው
早上好，车站在哪里？
早安，車站在哪裡？
おはようございます。駅はどこですか？
カタカナとひらがなと漢字
ｶﾀｶﾅ
안녕하세요, 역이 어디에 있나요?
안녕
Chào buổi sáng, nhà ga ở đâu?
Selamat pagi, di mana stasiun?
Habari ya asubuhi, kituo kiko wapi?
ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ
ᚠᚢᚦᚨᚱᚲ
𐌰𐍄𐍄𐌰 𐌿𐌽𐍃𐌰𐍂
𒀀𒁀𒂀
𠀀𠀁𠮷野家
mixed 中文 and العربية and русский 123""".split("\n")

COMBINING = [
    "e\u0301", "cafe\u0301", "caf\u00e9", "n\u0303o", "\u0301", " \u0301", "a\u0301\u0302\u0303\u0304", "Z\u0351\u036b\u0343a\u0329lgo\u0321",
    "o\u0308 \u00f6", "A\u030a \u00c5 \u212b", "x\u20d7", "1\u0301", " 1\u20e3", "\u0915\u094d\u0937", "\u0e01\u0e33", "\u1100\u1161\u11a8 \uac01",
    "s\u0323\u0307 s\u0307\u0323 \u1e69", "q\u0307\u0323", "\u00df \u1e9e \u017f", "i\u0307 \u0130 \u0131",
]

EMOJI = [
    "\U0001f600", "\U0001f600\U0001f601\U0001f602", "a\U0001f600b", "a \U0001f600 b", "\U0001f44d\U0001f3fd", "\U0001f44b\U0001f3ff wave",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f469\U0001f3fe\u200d\U0001f680", "\U0001f3f3\ufe0f\u200d\U0001f308",
    "\U0001f1eb\U0001f1f7", "\U0001f1e9\U0001f1ea\U0001f1ef\U0001f1f5", "\u2764\ufe0f", "\u2764", "\u2764\ufe0f\u200d\U0001f525", "1\ufe0f\u20e3 #\ufe0f\u20e3",
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "\u263a\ufe0e \u263a\ufe0f", "\u2708\ufe0f\u2192\U0001f3dd",
    "\U0001f9d1\u200d\U0001f4bb codes \U0001f40d and \u2615", "!!\U0001f525\U0001f525\U0001f525!!", "\U0001f600" * 12, " \U0001f600", "  \U0001f600",
    "\u2600\u2601\u2602\u2603", "\u00a9 \u00ae \u2122",
]

SYMBOLS = """\
∀x∈ℝ: x² ≥ 0 ∧ √x ≠ −1
∑∏∫∂∇ ± × ÷ ≈ ≡ ≤ ≥ ∞
← ↑ → ↓ ↔ ⇒ ⇔
αβγδε ΑΒΓΔΕ
𝔸𝕓𝒞 𝟙𝟚𝟛
█▓▒░ ┌─┬─┐ │ └─┴─┘
♠♣♥♦ ♩♪♫♬
₿ ₹ ₩ ₺ ¢
° ′ ″ ‰ ‱ № §¶†‡•
‹›«»„“”‚‘’
⁰¹²³⁴ ₀₁₂₃₄
ªº µ ǅ ǈ
ʰʷˀ ˈˌː ɐɑɒ
⠓⠑⠇⠇⠕
☰☱☲ ䷀䷁
꧁꧂ ༺༻""".split("\n")

CONTROL = [
    "\x00", "a\x00b", "\x00\x00\x00", "\x01\x02\x03", "\x04", "a\x04b", "\x06\x13\x14\x16\x1d", "\x07\x08", "\x1b[31mred\x1b[0m", "a\x1fb", "\x7f",
    "\x80\x81\x9f", "\x1c\x1d\x1e\x1f", "a\x1cb", "a \x1c b", "\u200e\u200f\u202a\u202c", "\u2066x\u2069", "\ufffd",
    "\ufff9x\ufffb", "\ue000\uf8ff", "\U00040000", "a\U0007ffffb", "\U000f0000", "\U00100000 \U0010ffff", "\U000e0041",
]

SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|><|im_start|>", "<|im_start|> <|im_end|>", "a<|im_end|>b", "a <|im_end|> b", "<|im_end|>\n", "\n<|im_end|>", "  <|im_end|>  ",
    "<|im_start", "im_start|>", "<|IM_START|>", "<|im_start |>", "< |im_start|>", "<|im_start|", "|im_start|>", "<<|im_start|>>", "<|<|im_start|>|>",
    "<|im_sta<|im_end|>rt|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>x.py", "<gh_stars>10", "<issue_start><issue_comment><issue_closed>",
    "<jupyter_start><jupyter_text><jupyter_code><jupyter_output><jupyter_script>", "<empty_output>", "<repo_name", "<filename >",
    "<|endoftext|><|endoftext|>text", "<s></s><unk><pad>", "<|system|>", "<|im_start|>1<|im_end|>2", "1<|im_start|>1",
    "it's<|im_end|>'s", "é<|im_start|>é", "\U0001f600<|im_end|>\U0001f600", "<|im_start|>system\nYou are terse.<|im_end|>\n<|im_start|>user\n  two  spaces<|im_end|>\n",
]

LONG = [
    "a" * 200, "ab" * 150, "!" * 120, "1" * 90, "=" * 257, "aA" * 64, "the " * 60, " the" * 60, "\u4e2d" * 50, "ha" * 40 + "!" * 10,
    "x" * 1000, ("word " * 8 + "\n") * 6, "-" * 3 + " " * 40 + "-" * 3, "".join(chr(c) for c in range(0x21, 0x7F)),
    "".join(chr(c) for c in range(0xA0, 0x180)), "".join(chr(c) for c in range(0x400, 0x460)),
    " ".join(str(n) for n in range(60)), "".join(chr(0x61 + i % 26) + " " * (i % 5) for i in range(80)),
]

CATEGORIES: dict[str, list[str]] = {
    "empty": [""], "prose": PROSE, "contractions": CONTRACTIONS, "digits": DIGITS, "whitespace": WHITESPACE, "code": CODE, "languages": LANGUAGES,
    "combining": COMBINING, "emoji": EMOJI, "symbols": SYMBOLS, "control": CONTROL, "special": SPECIAL, "long": LONG,
}


def all_strings() -> list[tuple[str, str]]:
    """(category, string), each string once."""
    seen: dict[str, str] = {}
    for category, strings in CATEGORIES.items():
        for string in strings:
            seen.setdefault(string, category)
    return [(category, string) for string, category in seen.items()]
