set -e
