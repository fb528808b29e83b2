#!/bin/sh
# run.sh MODEL: explores every interleaving; the sound model has no error, each broken one has. Needs spin and cc.
set -eu
model=$(readlink -f "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
errors() {
  spin "$@" -a "$model" >spin.log
  cc -O2 -DSAFETY -o pan pan.c 2>cc.log
  ./pan -m100000 >pan.log
  sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log
}
sound=$(errors)
states=$(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' pan.log)
echo "sound model: $sound errors, $states states"
[ "$sound" = 0 ] || exit 1
grep -q "max search depth too small" pan.log && exit 1
for fault in NO_FENCE NO_PIN STALE_ROW; do
  found=$(errors "-D$fault")
  echo "$fault: $found errors"
  [ "$found" != 0 ] || exit 1
done
