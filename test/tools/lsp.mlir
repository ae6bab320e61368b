// The language server opens a file, reports what is wrong with it, and explains an op under the cursor.
// RUN: tk-lsp-server --lit-test < %s | FileCheck %s
{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"processId":1,"rootPath":"mlir","capabilities":{},"trace":"off"}}
// CHECK: "hoverProvider": true
// -----
{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{
  "uri":"test:///step.mlir",
  "languageId":"mlir",
  "version":1,
  "text":"megakernel.kernel @k() attributes {grid = 3 : i64, cluster = 2 : i64, threads = 32 : i64} {\n  megakernel.return\n}"
}}}
// CHECK: "method": "textDocument/publishDiagnostics"
// CHECK: "message": "'megakernel.kernel' op has a grid of 3 and clusters of 2, expected a positive multiple (K2)"
// -----
{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{
  "uri":"test:///kernel.mlir",
  "languageId":"mlir",
  "version":1,
  "text":"megakernel.kernel @k() attributes {grid = 2 : i64, cluster = 2 : i64, threads = 32 : i64} {\n  megakernel.barrier <grid>\n  megakernel.return\n}"
}}}
// CHECK: "diagnostics": []
// -----
{"jsonrpc":"2.0","id":1,"method":"textDocument/hover","params":{
  "textDocument":{"uri":"test:///kernel.mlir"},
  "position":{"line":1,"character":6}
}}
// CHECK: megakernel.barrier
// -----
{"jsonrpc":"2.0","id":3,"method":"shutdown"}
// -----
{"jsonrpc":"2.0","method":"exit"}
