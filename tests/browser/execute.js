// Runs code in a kernel over its websocket, as JupyterLab does; resolves to what was printed.
([address, code, seconds]) =>
  new Promise((resolve) => {
    const socket = new WebSocket(address.replace(/^http/, "ws"));
    const number = crypto.randomUUID();
    let text = "";
    const end = (last) => {
      clearTimeout(timer);
      socket.onclose = null;
      socket.close();
      resolve(text + last);
    };
    let timer;
    socket.onclose = () => end("the kernel died");
    socket.onopen = () => {
      timer = setTimeout(() => end("still busy"), seconds * 1000); // since the kernel was asked
      socket.send(
        JSON.stringify({
          header: { msg_id: number, msg_type: "execute_request", username: "", session: number, version: "5.3", date: "" },
          parent_header: {},
          metadata: {},
          channel: "shell",
          content: { code, silent: false, store_history: true, user_expressions: {}, allow_stdin: false, stop_on_error: true },
          buffers: [],
        }),
      );
    };
    socket.onmessage = ({ data }) => {
      const { msg_type: type, content, parent_header: parent } = JSON.parse(data);
      if (type === "status" && ["dead", "restarting", "autorestarting"].includes(content.execution_state)) end("the kernel died");
      if (parent.msg_id !== number) return;
      if (type === "stream") text += content.text;
      if (type === "error") text += `${content.ename}: ${content.evalue}`;
      if (type === "status" && content.execution_state === "idle") end("");
    };
  })
