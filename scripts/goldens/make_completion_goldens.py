#!/usr/bin/env python3
"""Makes completions.json beside the SentencePiece tokenizers of tests/golden/tokenizers/.

What follows a prompt is the decoded whole without the decoded prompt, by transformers' own tokenizer; prompts end in a
word, within one, in a space, or within a character that the answer completes.

    pip install transformers sentencepiece protobuf
    scripts/goldens/make_completion_goldens.py
"""

import json
import random
from pathlib import Path

import transformers

TOKENIZERS = Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizers"
BROKEN = "\ufffd"


def cases(folder: Path) -> list:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    draw = random.Random(5)
    found = []
    for line in (TOKENIZERS / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        ids = tokenizer(json.loads(line)["text"] if line.startswith("{") else json.loads(line)).input_ids
        if len(ids) < 4 or len(found) >= 80:
            continue
        cut = draw.randrange(2, len(ids))
        prompt, answer = ids[:cut], ids[cut : cut + 12]
        whole = tokenizer.decode(prompt + answer, skip_special_tokens=True)
        before = tokenizer.decode(prompt, skip_special_tokens=True)
        if BROKEN in whole:
            continue  # cut within a character at its end: the two sides mark it in different ways
        while BROKEN in before:  # a character that the answer completes is the answer's
            cut -= 1
            before = tokenizer.decode(prompt[:cut], skip_special_tokens=True)
        assert whole.startswith(before)
        found.append({"prompt": prompt, "answer": answer, "text": whole[len(before) :]})
    return found


def main():
    for folder in sorted(TOKENIZERS.glob("sentencepiece-*")):
        golden = {"made_by": f"transformers {transformers.__version__}", "cases": cases(folder)}
        rows = ",\n".join(json.dumps(case, ensure_ascii=False) for case in golden["cases"])
        text = f'{{"made_by": {json.dumps(golden["made_by"])}, "cases": [\n{rows}\n]}}\n'
        (folder / "completions.json").write_text(text, encoding="utf-8")
        print(folder.name, len(golden["cases"]))


if __name__ == "__main__":
    main()
