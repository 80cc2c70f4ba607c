// Preloaded into the conformance suite: its mock servers name no host, and Node.js then takes every interface.
// A host given as an option would be looked up first, but the suite asks for its port right after `listen`.
// A handle that is bound already has a port at once.
"use strict";
const net = require("node:net");
const { listen } = net.Server.prototype;

net.Server.prototype.listen = function (port, ...rest) {
  const bare = typeof port === "number" && typeof rest[0] !== "string";
  return listen.call(this, bare ? net._createServerHandle("127.0.0.1", port, 4) : port, ...rest);
};
