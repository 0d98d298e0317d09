// Keeps the proxy's connections to Unix sockets open, as it keeps those to ports.
//
// configurable-http-proxy asks a socket to close the connection after each answer. On a busy machine that can
// be before the proxy has written the end of a form: it then meets a closed socket (EPIPE) and shows
// "503: Your server appears to be down", although the answer was on its way. (Its version 5.3, proxyOptsForTarget.)

"use strict";
const http = require("node:http");

const agent = new http.Agent({ keepAlive: true });
const request = http.request;

http.request = (options, ...rest) => {
  if (options.socketPath && !options.agent && options.headers?.connection === "close") {
    options.agent = agent;
    options.headers.connection = "keep-alive";
  }
  return request(options, ...rest);
};
