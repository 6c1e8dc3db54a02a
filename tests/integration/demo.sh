#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Both demos end well, at a small size.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
DEMO_TASKS=60 DEMO_PACE=0.02 scripts/demo_tasks.sh
DEMO_PACE=0.3 scripts/demo.sh
