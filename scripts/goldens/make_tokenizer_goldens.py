#!/usr/bin/env python3
"""Makes tests/golden/tokenizers/ and tests/golden/chat_templates.json.

Trains one small tokenizer of every supported kind and records what the reference implementations (the PyPI packages
`tokenizers`, `sentencepiece` and `jinja2`) make of a corpus of awkward texts and conversations.

    pip install tokenizers sentencepiece protobuf jinja2
    scripts/goldens/make_tokenizer_goldens.py [--model FOLDER]     FOLDER: a real model's, recorded as ids only

Each kind's folder holds the tokenizer's files and expected.json: {"plain": [[ids], ...], "unparsed": [[ids], ...]}, one
list of ids for each line of corpus.jsonl, with special tokens of the text parsed and not parsed.
"""

import argparse
import io
import json
import random
from pathlib import Path

import jinja2
import jinja2.sandbox
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

CASES = [
    "",
    " ",
    "Hello, world!",
    "  leading and trailing  ",
    "The quick brown fox jumps over the lazy dog. Don't, can't, we'll, they've, I'm, he'd, you're, it's.",
    "DON'T CAN'T WE'LL THEY'VE I'M HE'D YOU'RE IT'S 'S'T'RE 'Ll 'vE",
    "it'\u017f a long s; '\u017f '\u017fa 'S\u017f IT'\u017f",
    "'' 'a' 'sa 'll'll' ' s '\n's",
    "Numbers: 0 12 345 6789 12345678901234567890 3.14159 1e-10 0x7F 2024-12-31 $1,234.56",
    "\u0661\u0662\u0663 \u0967\u0968\u0969 \u2160\u2161 \u00bd\u00be \u2460\u2461 x\u00b2y\u00b3 \u4e00\u4e8c\u4e09 1\u0661a\u00b2",
    "def f(x):\n    if x > 0:\n\treturn x ** 2  # comment\n    else:\n        return -x\n\n\n",
    'for (int i = 0; i < n; ++i) { printf("%d\\n", a[i]); }  // C\r\n\r\n#include <vector>\r\n',
    '{"key": [1, 2.5, null, true], "nested": {"a": "b\\u00e9"}}',
    "SELECT * FROM t WHERE a >= 10 AND b LIKE '%x%'; -- done",
    "<div class=\"a-b\"><p>&nbsp;x</p></div>",
    "https://example.org/path?q=1&r=%20#frag user@example.org /usr/lib/x86_64",
    "Fran\u00e7ais: \u00e9t\u00e9, na\u00efve, \u0153uvre, \u00ab guillemets \u00bb, l'h\u00f4tel, aujourd'hui",
    "Deutsch: Stra\u00dfe, \u00c4rger, \u00fcber, Gr\u00f6\u00dfe; Espa\u00f1ol: \u00bfqu\u00e9? \u00a1ma\u00f1ana!",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0442\u0435\u043a\u0441\u0442, \u0432\u043a\u043b\u044e\u0447\u0430\u044f \u0451 \u0438 \u0439.",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u8fd9\u662f\u4e00\u4e2a\u6d4b\u8bd5\u30022024\u5e74\u3002",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002\u30ab\u30bf\u30ab\u30ca\u3068\u6f22\u5b57\u3002",
    "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8\uc785\ub2c8\ub2e4. \u1112\u1161\u11ab (jamo)",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629: \u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627 \u06f1\u06f2\u06f3 \u200fRTL\u200e",
    "\u05e2\u05d1\u05e8\u05d9\u05ea \u05e9\u05c1\u05dc\u05d5\u05b9\u05dd",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u092a\u093e\u0920 \u0915\u094d\u0937\u0947\u0924\u094d\u0930, \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48",
    "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u03c2, T\u00fcrk\u00e7e \u0130\u0131\u011f\u015f, Ti\u1ebfng Vi\u1ec7t",
    "emoji \U0001f600\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \u2764\ufe0f \U0001f1e9\U0001f1ea 1\ufe0f\u20e3 \U0001f3f4\U000e0067\U000e0062\U000e007f",
    "combining e\u0301 n\u0303 a\u030a\u0323 o\u0323\u0302 \u0301alone \u1100\u1161\u11a8 \u212b \u2126 \ufb01",
    "whitespace: \t\ttabs\t \t mixed  \u00a0\u00a0nbsp\u2003em\u3000wide\u2028line\u2029para\u0085nel\u000bvt\u000cff",
    "\n\n\n",
    "a\n\n\nb\r\n\r\nc\n \n d\n\t\ne  \n",
    "   \n   \n   x",
    "x   ",
    "x \n",
    "tab\tend\t",
    " \u200b zero\u200bwidth\ufeffbom \u180emongolian \u2060joiner\u00adsoft",
    "control \x00\x01\x02\x07\x08\x0e\x1b[31mred\x1b[0m \x1c\x1d\x1e\x1f \x7f\x80\x9f end",
    "punct!!! ??? ... --- *** ((())) [[]] {{}} <<>> ,,, ;;; ::: ''' \"\"\" ``` ~~~ @@@ ### $$$ %%% ^^^ &&& ___",
    "\u2018single\u2019 \u201cdouble\u201d \u2014 \u2013 \u2026 \u2022 \u2122 \u00a9 \u20ac \u00a3 \u2211 \u222b \u221e \u2260 \u2264 \u03c0r\u00b2",
    "private \ue000\uf8ff noncharacter \ufffe\uffff replacement \ufffd astral \U0001d400\U0001d4d0 \U00020000\U0002a6d6 \U0010ffff",
    "CamelCaseIdentifier snake_case_identifier SCREAMING_CASE kebab-case x1y2z3 v1.2.3-rc4",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "abcabcabcabcabcabcabcabcabcabcthethethethethethethethetheabababababababababaninininininininining",
    "................................................................",
    "\u4e00" * 70,
    "<|endoftext|>",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "a<|endoftext|>b <|endoftext|> c\n<|endoftext|>\n<|endoftext|><|endoftext|>",
    "<|endoftext|", "<|endof<|endoftext|>text|>", "<|endoftext|>>", "<<|endoftext|>",
    "x  <|left|>  y <|right|>  z  <|both|>  w<|left|><|right|> \n <|both|>\n",
    "single word wordy sword word. <word> word_ _word word\u0301 word",
    "  plain  PLAIN plainplain",
    "caf\u00e9 cafe\u0301 caf\u00e9s",
    "<s>[INST] hi [/INST] there </s><s>again</s>",
    "<s> hi </s> <unk> <pad>",
    "\u2581 lower one eighth \u2581\u2581block",
    "<0x41> <0xE4> byte pieces as text",
    "if(a&&b||!c){x+=1;y-=2;z*=3;w/=4;}\t// ok\n\tfoo->bar.baz(qux);\n",
    "\\begin{align} E &= mc^2 \\\\ \\frac{a}{b} \\end{align}",
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. #### 72",
]

TRAINING = [
    "The quick brown fox jumps over the lazy dog while the other animals are watching from the shade of the trees.",
    "Speculative decoding proposes several tokens and lets the large model verify all of them in one pass.",
    "There isn't any reason why they've done it; we're sure it's fine, I'm told, and he'll say she'd agree.",
    "def forward(self, hidden_states, attention_mask=None):\n    return self.linear(self.norm(hidden_states))\n",
    "for (int i = 0; i < count; ++i) {\n    total += values[i] * weights[i];\n}\n",
    "In 1998 there were 1234 items, 567 of them at 3.99 and 12 at 250 each, for a total of 2024.",
    "Le chat est assis sur la table et regarde les enfants qui jouent dans la cour de l'école à côté du café.",
    "Die Straße über die Brücke ist wegen größerer Arbeiten für mehrere Wochen gesperrt; das ist ärgerlich.",
    "Это простой пример текста на русском языке, который нужен только для проверки.",
    "这是一个简单的中文例子，用来测试分词器。今天天气很好，我们去公园玩。",
    "これは日本語の簡単な例文です。今日はとても良い天気ですね。",
    "한국어 문장도 하나 있으면 좋겠습니다. 오늘은 날씨가 좋네요.",
    "مرحبا بالعالم هذا نص عربي بسيط",
    "नमस्ते दुनिया यह एक सरल वाक्य है",
    "😀👍🏽 👨‍👩‍👧 ❤️ emoji are characters too 😀👍",
    "    indented\n\n\tcode   with    spaces\r\n\r\nand newlines\n",
    "don't can't won't shouldn't DON'T CAN'T word words wordy plain plainly café cafés",
]


def training_texts():
    source = random.Random(7)
    return [source.choice(TRAINING) for _ in range(300)] + TRAINING


def special(content, **flags):
    return AddedToken(content, special=True, normalized=False, **flags)


def added_tokens():
    """One token for each flag, besides the usual ones."""
    return [
        special("<|endoftext|>"),
        special("<|im_start|>"),
        special("<|im_end|>"),
        special("<|left|>", lstrip=True),
        special("<|right|>", rstrip=True),
        special("<|both|>", lstrip=True, rstrip=True),
    ], [
        AddedToken("word", single_word=True, normalized=False),
        AddedToken("caf\u00e9", normalized=True),
        AddedToken("  plain", normalized=False),
        AddedToken("<word>", normalized=True),
    ]


def train_bpe(pre_tokenizer, normalizer=None, vocab_size=700):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    controls, words = added_tokens()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=controls,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    tokenizer.add_tokens(words)
    return tokenizer


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated", invert=False), byte_level(False)])


def remake(tokenizer, change):
    """The tokenizer after a change of its JSON, for what the Python interface cannot set."""
    description = json.loads(tokenizer.to_str())
    change(description)
    return Tokenizer.from_str(json.dumps(description))


def gpt2():
    tokenizer = train_bpe(byte_level(True))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def llama3():
    tokenizer = train_bpe(split_then_bytes(LLAMA3))

    def whole_pieces_first(description):
        model = description["model"]
        model["ignore_merges"] = True
        # Tokens that merging alone would not reach: only there because they are whole pieces.
        for piece in (" proposes", "Natalia", "!!!"):
            mapped = byte_level(False).pre_tokenize_str(piece)[0][0]
            if mapped not in model["vocab"]:
                model["vocab"][mapped] = len(description["added_tokens"]) + len(model["vocab"]) + 50

    tokenizer = remake(tokenizer, whole_pieces_first)
    begin = ("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))
    template = processors.TemplateProcessing(single="<|endoftext|> $A", pair=None, special_tokens=[begin])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def digits():
    tokenizer = train_bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]))

    def drop_bytes(description):
        # Like the real one of this kind: bytes that the training text never held have no token.
        model = description["model"]
        for byte in "\u0104\u0106\u00f1\u00f5":
            assert not any(byte in merge[0] + merge[1] for merge in model["merges"])
            del model["vocab"][byte]
        model["merges"] = [" ".join(merge) for merge in model["merges"]]

    return remake(tokenizer, drop_bytes)


def qwen2():
    return train_bpe(split_then_bytes(QWEN2), normalizers.NFC())


def record_bpe(name, tokenizer, config):
    folder = GOLDEN / "tokenizers" / name
    folder.mkdir(parents=True, exist_ok=True)
    description = json.loads(tokenizer.to_str())
    (folder / "tokenizer.json").write_text(json.dumps(description, ensure_ascii=False, separators=(",", ":")) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")
    write_expected(folder, tokenizer)


def write_expected(folder, tokenizer):
    tokenizer.no_padding()
    tokenizer.no_truncation()
    expected = {}
    for key, unparsed in (("plain", False), ("unparsed", True)):
        tokenizer.encode_special_tokens = unparsed
        expected[key] = [tokenizer.encode(text, add_special_tokens=False).ids for text in CASES]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


def record_sentencepiece(name, model_type, vocab_size):
    folder = GOLDEN / "tokenizers" / name
    folder.mkdir(parents=True, exist_ok=True)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in training_texts() for line in text.split("\n")),
        model_writer=model,
        model_type=model_type,
        vocab_size=vocab_size,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        pad_id=-1,
        minloglevel=2,
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "added_tokens_decoder": {}}
    for token_id, content in ((0, "<unk>"), (1, "<s>"), (2, "</s>"), (vocab_size, "<|im_start|>"), (vocab_size + 1, "<|im_end|>")):
        config["added_tokens_decoder"][str(token_id)] = {"content": content, "special": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")
    (folder / "added_tokens.json").write_text(json.dumps({"<|im_end|>": vocab_size + 1, "<|endoftext|>": vocab_size + 2}) + "\n")
    controls = {entry["content"]: int(token_id) for token_id, entry in config["added_tokens_decoder"].items()}
    plain = {"<|endoftext|>": vocab_size + 2}
    encoders = sentencepiece_encoders(model.getvalue())
    expected = {
        "plain": [encode_around(text, encoders, controls | plain) for text in CASES],
        "unparsed": [encode_around(text, encoders, plain) for text in CASES],
    }
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


def sentencepiece_encoders(serialized):
    """The model for the beginning of a text, and without its dummy prefix for what follows a special token."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(serialized)
    proto.normalizer_spec.add_dummy_prefix = False
    return (
        sentencepiece.SentencePieceProcessor(model_proto=serialized),
        sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString()),
    )


def encode_around(text, encoders, tokens):
    ids, position, begin = [], 0, 0

    def flush(end):
        if begin < end:
            ids.extend(encoders[0 if begin == 0 else 1].encode(text[begin:end]))

    while position < len(text):
        found = max((t for t in tokens if text.startswith(t, position)), key=len, default=None)
        if found is None:
            position += 1
            continue
        flush(position)
        ids.append(tokens[found])
        position = begin = position + len(found)
    flush(len(text))
    return ids


CHATML_LOOP = (
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DEFAULT_SYSTEM = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\n@<|im_end|>\n' }}{% endif %}"
)
# What Qwen3's template does where there are no tools.
QWEN3 = r"""{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(open=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set from_tool = message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>') %}
    {%- if ns.open and message.role == "user" and not from_tool %}
        {%- set ns.open = false %}
        {%- set ns.last_query_index = messages|length - 1 - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in message.content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
            {%- set reasoning_content = message.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\n' }}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""
TEMPLATES = {
    "chatml": ("chatml", "{% for message in messages %}" + CHATML_LOOP),
    "chatml-smollm2": (
        "chatml",
        DEFAULT_SYSTEM.replace("@", "You are a helpful AI assistant named SmolLM, trained by Hugging Face") + CHATML_LOOP,
    ),
    "chatml-escaped": (
        "chatml",
        (DEFAULT_SYSTEM.replace("@", "You\\'re a helpful assistant.") + CHATML_LOOP).replace("\n", "\\n"),
    ),
    "chatml-qwen2.5": (
        "chatml",
        r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a careful assistant.' }}
    {%- endif %}
    {{- "<|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are a careful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
""",
    ),
    "qwen3": ("qwen3", QWEN3),
    "qwen3-no-think": ("qwen3-no-think", QWEN3),
    "llama-2": (
        "llama-2",
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
        "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
        "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
        "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
        "{% if loop.index0 == 0 and system_message != false %}"
        "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
        "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
        "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
        "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    ),
    "llama-3": (
        "llama-3",
        "{% set loop_messages = messages %}{% for message in loop_messages %}"
        "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
        "+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
        "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    ),
    "llama-3.1": (
        "llama-3",
        r"""{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
""",
    ),
    "vicuna": (
        "vicuna",
        "{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}"
        "{% set loop_messages = messages[1:] %}{% else %}{% set system_message = 'A chat between a curious user and an "
        "artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user\\'s "
        "questions.' %}{% set loop_messages = messages %}{% endif %}{{ system_message + ' ' }}"
        "{% for message in loop_messages %}{% if message['role'] == 'user' %}{{ 'USER: ' + message['content'] + ' ' }}"
        "{% else %}{{ 'ASSISTANT: ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
    ),
}

CONVERSATIONS = [
    [("user", "Hello")],
    [("system", "Be brief."), ("user", "Hello"), ("assistant", "Hi."), ("user", "Bye")],
    [("user", "  spaces \n"), ("assistant", "\n an answer \t"), ("user", "\u00a0\u3000more\u0085\x1c"), ("assistant", "end")],
    [("system", " \n sys \n "), ("user", "u"), ("assistant", "a")],
    [("user", ""), ("assistant", ""), ("user", "'quoted' \"text\" {{ jinja }} {% if %} <b>&amp;</b>")],
    [("user", "caf\u00e9 \U0001f600\nline two\n\nline four"), ("assistant", "<|im_end|> inside"), ("user", "\u200bzero\u200b")],
]
THOUGHTS = [
    [("user", "q"), ("assistant", "<think>\n\nhm\n\n</think>\n\n\nyes"), ("user", "r"), ("assistant", "<think>\n\n</think>\n\nno")],
    [("user", "q"), ("assistant", "<think>\nfirst\n</think>\n\n"), ("user", "<tool_response>1</tool_response>"),
     ("assistant", "\n\nno thought"), ("assistant", "a<think>x<think>y</think>b</think>\nz")],
    [("assistant", "<think>begun"), ("assistant", "and</think>\n ended")],
]


def record_chats():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    cases = []
    for case, (name, source) in TEMPLATES.items():
        config = {"chat_template": source, "bos_token": "<s>", "eos_token": "</s>"}
        if name == "llama-3":
            config |= {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
        rendered = []
        for conversation in CONVERSATIONS + (THOUGHTS if name.startswith("qwen3") else []):
            messages = [{"role": role, "content": content} for role, content in conversation]
            for generation_prompt in (False, True):
                text = environment.from_string(source).render(
                    messages=messages,
                    add_generation_prompt=generation_prompt,
                    bos_token=config["bos_token"],
                    eos_token=config["eos_token"],
                    enable_thinking=name != "qwen3-no-think",
                )
                rendered.append({"messages": messages, "generation_prompt": generation_prompt, "text": text})
        cases.append({"case": case, "name": name, "asked": name if name == "qwen3-no-think" else "", "tokenizer_config": config, "rendered": rendered})
    (GOLDEN / "chat_templates.json").write_text(json.dumps(cases, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of SmolLM2, to record its ids too")
    arguments = parser.parse_args()
    (GOLDEN / "tokenizers").mkdir(parents=True, exist_ok=True)
    corpus = GOLDEN / "tokenizers" / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(text) + "\n" for text in CASES))
    record_bpe("gpt2", gpt2(), {"bos_token": "<|endoftext|>", "add_bos_token": False})
    record_bpe("llama3", llama3(), {"bos_token": "<|endoftext|>"})
    record_bpe("digits", digits(), {"bos_token": {"content": "<|im_start|>"}})
    record_bpe("qwen2", qwen2(), {"bos_token": None, "add_bos_token": False})
    record_sentencepiece("sentencepiece-bpe", "bpe", 640)
    record_sentencepiece("sentencepiece-unigram", "unigram", 500)
    if arguments.model:
        write_expected(GOLDEN / "tokenizers" / "smollm2", Tokenizer.from_file(str(arguments.model / "tokenizer.json")))
    record_chats()


if __name__ == "__main__":
    main()
