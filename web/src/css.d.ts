// SPDX-License-Identifier: Apache-2.0
// Styles are put into one file beside the program.
declare module "*.css";
