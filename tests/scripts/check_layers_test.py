"""check_layers.py finds each kind of forbidden arrow, and nothing else."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
sys.dont_write_bytecode = True
import check_layers  # noqa: E402


def check(files: dict[str, str]) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        sys.argv = ["check_layers.py", "--root", folder]
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = check_layers.main()
        return code, output.getvalue()


class CheckLayers(unittest.TestCase):
    def test_arrows_down_the_path_are_fine(self):
        files = {
            "kernels/rows/a.cc": '#include "kernels/op/a.h"\n#include <vector>\n',
            "data/files/a.h": "#include <nlohmann/json.hpp>\n",
            "data/tokenizer/a.cc": '#include "data/files/a.h"\n#include "data/tokenizer/files/a.h"\n#include "a.h"\n',
            "model/target/a.cc": '#include "kernels/a.h"\n#include "data/a.h"\n',
            "infer/engine/a.cc": '#include "model/drafters/a.h"\n#include "infer/tree/a.h"\n',
            "train/run/a.cc": '#include "infer/a.h"\n  #  include "model/a.h"\n',
        }
        self.assertEqual(check(files)[0], 0)

    def test_each_forbidden_arrow_is_named(self):
        for room, header in [
            ("kernels", "data/a.h"),
            ("data", "kernels/a.h"),
            ("kernels", "model/a.h"),
            ("data", "infer/a.h"),
            ("model", "infer/a.h"),
            ("model", "train/a.h"),
            ("infer", "train/a.h"),
            ("infer", "../train/a.h"),
        ]:
            for suffix in ["h", "cc", "cu"]:
                code, output = check({f"{room}/deep/x.{suffix}" if ".." not in header else f"{room}/x.{suffix}":
                                      f'\n#include "{header}"\n'})
                self.assertEqual(code, 1, (room, header))
                self.assertIn(f"x.{suffix}:2: {room} includes {header}", output)

    def test_arrows_up_within_a_room_are_named(self):
        for source, header in [
            ("infer/tree/x.h", "infer/engine/a.h"),
            ("infer/tree/x.h", "../engine/a.h"),
            ("data/tokenizer/files/x.cc", "data/tokenizer/a.h"),
            ("data/chat/jinja/values/x.cc", "data/chat/a.h"),
            ("train/ranks/x.cc", "train/run/a.h"),
        ]:
            code, output = check({source: f'#include "{header}"\n'})
            self.assertEqual(code, 1, (source, header))
            self.assertIn(f"{source}:1: ", output)
            self.assertIn("comes after", output)

    def test_a_file_beside_the_inner_rooms_and_a_full_folder_are_named(self):
        self.assertIn("infer/x.cc:1: the file lies in no inner room", check({"infer/x.cc": ""})[1])
        self.assertEqual(check({f"infer/tree/x{number}.cc": "" for number in range(24)})[0], 0)
        self.assertIn("infer/tree:1: the folder holds 25 files", check({f"infer/tree/x{number}.cc": "" for number in range(25)})[1])

    def test_another_map_in_the_documents_is_named(self):
        files = {"infer/tree/a.h": "", "docs/architecture.md": "before\n" + check_layers.the_map() + "after\n"}
        self.assertEqual(check(files)[0], 0)
        files["docs/architecture.md"] = files["docs/architecture.md"].replace("candidate trees", "trees")
        self.assertIn("docs/architecture.md:1: ", check(files)[1])

    def test_long_files_are_named(self):
        self.assertEqual(check({"data/files/a.cc": "\n" * 400})[0], 0)
        code, output = check({"data/files/a.cc": "\n" * 401})
        self.assertEqual(code, 1)
        self.assertIn("data/files/a.cc:401", output)

    def test_an_empty_tree_is_no_success(self):
        self.assertEqual(check({})[0], 1)


if __name__ == "__main__":
    unittest.main()
