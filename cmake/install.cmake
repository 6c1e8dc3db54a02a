# SPDX-License-Identifier: Apache-2.0
#
# What `make install` puts where.

include(GNUInstallDirs)
