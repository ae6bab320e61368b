//===- SourceLines.cpp - the user's lines of an op ------------------------===//

#include "lib/Analysis/SourceLines.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Path.h"

using namespace mlir;

SmallVector<std::string> mlir::megakernel::sourceLines(Location location) {
  SmallVector<std::pair<StringRef, unsigned>> found;
  location->walk([&](Location part) {
    auto line = dyn_cast<FileLineColLoc>(part);
    // What tk-opt read from stdin is a stage of the compiler, not the user's file.
    if (line && line.getFilename() != "<stdin>")
      found.emplace_back(llvm::sys::path::filename(line.getFilename()), line.getLine());
    return WalkResult::advance();
  });
  llvm::sort(found);
  found.erase(llvm::unique(found), found.end());
  SmallVector<std::string> lines;
  for (auto [file, line] : found)
    lines.push_back((file + ":" + Twine(line)).str());
  return lines;
}
