#!/usr/bin/env bash
# Checks form and structure. Prints `file:line: message` per finding; exit code 1 if there is any.
# Usage: tools/lint.sh [SCOPE]   which C++ files clang-tidy reads (slow: seconds per file):
#   REVISION  those that differ from it; without SCOPE: the merge base with origin/main, or else HEAD~1
#   all       every one         none   none
set -uo pipefail
cd "$(dirname "$0")/.."
bin="${STRAKE_VENV:-.venv}/bin"
build="${STRAKE_BUILD:-build-dev}"  # of the preset that compiles each source by itself
scope="${1:-}"
failed=0

run() {
  local name="$1"
  shift
  "$@" || { echo "lint: $name failed" >&2; failed=1; }
}

check_format() {
  local files
  mapfile -t files < <(git ls-files '*.h' '*.cpp')
  "$bin/clang-format" --dry-run -Werror "${files[@]}"
}

default_revision() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null) || base=""
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then base=$(git rev-parse -q --verify HEAD~1); fi
  echo "$base"
}

# A changed header is read through the source of the same name or else the first one that includes it.
sources_of() {
  local file
  for file in "$@"; do
    [ -f "$file" ] || continue
    case "$file" in
      *.cpp) echo "$file" ;;
      *.h)
        if [ -f "${file%.h}.cpp" ]; then echo "${file%.h}.cpp"; else
          git grep -lF "#include \"$file\"" -- '*.cpp' | head -1
        fi
        ;;
    esac
  done | sort -u
}

tidy_files() {
  case "$scope" in
    none) ;;
    all) git ls-files '*.cpp' ;;
    *)
      local revision="${scope:-$(default_revision)}"
      local changed
      mapfile -t changed < <(git diff --name-only "$revision" -- '*.h' '*.cpp'; git ls-files -o --exclude-standard '*.h' '*.cpp')
      sources_of "${changed[@]}"
      ;;
  esac
}

check_tidy() {
  local files
  case "$scope" in
    none | all) ;;
    *)
      git rev-parse -q --verify "${scope:-$(default_revision)}^{commit}" >/dev/null || {
        echo "lint: there is no revision '${scope:-$(default_revision)}' to compare with" >&2
        return 1
      }
      ;;
  esac
  mapfile -t files < <(tidy_files)
  [ "${#files[@]}" -gt 0 ] || { echo "lint: no C++ file for clang-tidy" >&2; return 0; }
  [ -n "${STRAKE_BUILD:-}" ] || cmake --preset dev >/dev/null || return 1
  [ -f "$build/compile_commands.json" ] || { echo "lint: no $build/compile_commands.json" >&2; return 1; }
  echo "lint: clang-tidy on ${#files[@]} files" >&2
  # omp.h is GCC's: Clang lacks one here, and takes no arguments to the attribute that GCC's puts on its functions.
  local openmp=("--extra-arg=-idirafter$(g++ -print-file-name=include)" "--extra-arg=-D__malloc__(...)=")
  # Each file reports by itself; the count of suppressed warnings in system headers is of no interest.
  printf '%s\n' "${files[@]}" |
    xargs -P "$(nproc)" -n 1 "$bin/clang-tidy" --quiet -p "$build" "${openmp[@]}" \
      2> >(grep -vE '^[0-9]+ warnings?.* generated|^Suppressed|^$' >&2)
}

run clang-format check_format
run "ruff check" "$bin/ruff" check --quiet --output-format concise .
run "ruff format" "$bin/ruff" format --quiet --check --output-format concise .
run check_layers "$bin/python" tools/check_layers.py
run check_sizes "$bin/python" tools/check_sizes.py
run clang-tidy check_tidy
exit "$failed"
